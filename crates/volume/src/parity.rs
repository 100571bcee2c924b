//! The arithmetic of parity, over the field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1
//! and the generator 2.
//!
//! With data columns D0, D1, …: P is their sum, Q the sum of 2^i Di. Addition is exclusive or.
//! [`Parity`] sums columns one at a time, so that no more than one of them is in memory.

/// The polynomial without its highest term.
const POLYNOMIAL: u8 = 0x1d;
/// 2^255 is 1.
const ORDER: usize = 255;

/// Powers of the generator, and their inverse.
struct Tables {
    exp: [u8; ORDER],
    log: [u8; 256],
}

const TABLES: Tables = {
    let mut tables = Tables { exp: [0; ORDER], log: [0; 256] };
    let mut power = 1;
    let mut exponent = 0;
    while exponent < ORDER {
        tables.exp[exponent] = power;
        tables.log[power as usize] = exponent as u8;
        power = double(power);
        exponent += 1;
    }
    tables
};

const fn double(byte: u8) -> u8 {
    // All ones if the highest bit is set: no branch, so that loops over slices become vector code.
    let carry = ((byte as i8) >> 7) as u8;
    (byte << 1) ^ (carry & POLYNOMIAL)
}

/// 2 to the power of `exponent`.
fn power(exponent: usize) -> u8 {
    TABLES.exp[exponent % ORDER]
}

fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    power(usize::from(TABLES.log[usize::from(a)]) + usize::from(TABLES.log[usize::from(b)]))
}

/// # Panics
/// If `a` is 0.
fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0, "0 has no inverse");
    power(ORDER - usize::from(TABLES.log[usize::from(a)]))
}

fn add(sum: &mut [u8], bytes: &[u8]) {
    for (sum, byte) in sum.iter_mut().zip(bytes) {
        *sum ^= byte;
    }
}

fn scale(bytes: &mut [u8], factor: u8) {
    let products: [u8; 256] = std::array::from_fn(|byte| multiply(byte as u8, factor));
    for byte in bytes {
        *byte = products[usize::from(*byte)];
    }
}

/// P and Q of the columns that were added.
#[derive(Debug)]
pub(crate) struct Parity {
    p: Vec<u8>,
    q: Vec<u8>,
}

impl Parity {
    /// Parity of columns of `len` zeros.
    pub(crate) fn new(len: usize) -> Self {
        Self { p: vec![0; len], q: vec![0; len] }
    }

    /// Adds the next data column, from the last to the first; an unknown one counts as zeros.
    pub(crate) fn prepend(&mut self, column: Option<&[u8]>) {
        for byte in &mut self.q {
            *byte = double(*byte);
        }
        if let Some(column) = column {
            add(&mut self.p, column);
            add(&mut self.q, column);
        }
    }

    /// P of the columns.
    pub(crate) fn p(&self) -> &[u8] {
        &self.p
    }

    /// Q of the columns.
    pub(crate) fn q(&self) -> &[u8] {
        &self.q
    }

    /// Adds the stored P: leaves the sum of the unknown columns.
    pub(crate) fn add_p(&mut self, p: &[u8]) {
        add(&mut self.p, p);
    }

    /// Adds the stored Q.
    pub(crate) fn add_q(&mut self, q: &[u8]) {
        add(&mut self.q, q);
    }

    /// The single unknown column, after [`add_p`](Self::add_p).
    pub(crate) fn solve_with_p(self) -> Vec<u8> {
        self.p
    }

    /// The single unknown column, after [`add_q`](Self::add_q).
    pub(crate) fn solve_with_q(mut self, column: usize) -> Vec<u8> {
        scale(&mut self.q, inverse(power(column)));
        self.q
    }

    /// `column` of the two unknown columns, after both parities were added.
    ///
    /// The sums are `p = a + b` and `q = 2^column a + 2^other b`, so that `a = (q + 2^other p) /
    /// (2^column + 2^other)`.
    ///
    /// # Panics
    /// If the two are 255 columns apart: Q cannot tell them from each other.
    pub(crate) fn solve_with_both(mut self, column: usize, other: usize) -> Vec<u8> {
        scale(&mut self.p, power(other));
        add(&mut self.q, &self.p);
        scale(&mut self.q, inverse(power(column) ^ power(other)));
        self.q
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Multiplication as polynomials, bit by bit.
    fn slow_multiply(a: u8, b: u8) -> u8 {
        let product = (0..8)
            .filter(|bit| b >> bit & 1 == 1)
            .fold(0_u16, |sum, bit| sum ^ (u16::from(a) << bit));
        let reduced = (8..15).rev().fold(product, |product, bit| {
            if product >> bit & 1 == 1 { product ^ (0x11d << (bit - 8)) } else { product }
        });
        reduced as u8
    }

    #[test]
    fn multiplication_is_that_of_polynomials() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), slow_multiply(a, b), "{a} * {b}");
            }
            assert_eq!(double(a), slow_multiply(a, 2));
            if a != 0 {
                assert_eq!(slow_multiply(a, inverse(a)), 1);
            }
        }
    }

    fn parity_of(columns: &[Vec<u8>], unknown: &[usize]) -> Parity {
        let mut parity = Parity::new(columns[0].len());
        for (index, column) in columns.iter().enumerate().rev() {
            parity.prepend((!unknown.contains(&index)).then_some(column.as_slice()));
        }
        parity
    }

    fn columns() -> impl Strategy<Value = Vec<Vec<u8>>> {
        (1_usize..12, 1_usize..40).prop_flat_map(|(columns, len)| {
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), len), columns)
        })
    }

    proptest! {
        #[test]
        fn parity_is_its_definition(columns in columns()) {
            let parity = parity_of(&columns, &[]);
            for at in 0..columns[0].len() {
                let p = columns.iter().fold(0, |sum, column| sum ^ column[at]);
                let q = (0..).zip(&columns).fold(0, |sum, (index, column)| {
                    let factor = (0..index).fold(1, |power, _: i32| slow_multiply(power, 2));
                    sum ^ slow_multiply(factor, column[at])
                });
                prop_assert_eq!((parity.p()[at], parity.q()[at]), (p, q));
            }
        }

        #[test]
        fn lost_columns_come_back(columns in columns(), one: usize, two: usize) {
            let whole = parity_of(&columns, &[]);
            let (one, two) = (one % columns.len(), two % columns.len());
            let mut rest = parity_of(&columns, &[one]);
            rest.add_p(whole.p());
            prop_assert_eq!(&rest.solve_with_p(), &columns[one]);
            let mut rest = parity_of(&columns, &[one]);
            rest.add_q(whole.q());
            prop_assert_eq!(&rest.solve_with_q(one), &columns[one]);
            if one != two {
                let mut rest = parity_of(&columns, &[one, two]);
                rest.add_p(whole.p());
                rest.add_q(whole.q());
                prop_assert_eq!(&rest.solve_with_both(one, two), &columns[one]);
            }
        }
    }
}
