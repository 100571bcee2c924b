//! Space that is reserved for writing data back.

use larder_transaction::QuotaReservation;
use larder_transaction::space::Reservation;

/// Space for writing data back.
pub(crate) struct DataReservation {
    pub(crate) data: Reservation,
    pub(crate) metadata: Reservation,
    /// Within the quota of quota groups.
    pub(crate) quota: Option<QuotaReservation>,
}

impl DataReservation {
    pub(crate) fn absorb(&mut self, more: Self) {
        self.data.absorb(more.data);
        self.metadata.absorb(more.metadata);
        match &mut self.quota {
            Some(quota) => more.quota.into_iter().for_each(|more| quota.absorb(more)),
            None => self.quota = more.quota,
        }
    }
}
