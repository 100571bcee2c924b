//! Space that is reserved for writing data back.

use larder_transaction::QuotaReservation;
use larder_transaction::space::Reservation;

/// Room for writing data back.
pub(crate) struct DataReservation {
    pub(crate) data: Reservation,
    pub(crate) metadata: Reservation,
    /// Within the quota of quota groups.
    pub(crate) quota: Option<QuotaReservation>,
}
