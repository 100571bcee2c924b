//! What requests to object storage cost.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

/// The file with the user's prices.
const PRICES: &str = "LARDER_PRICES";

const GIB: f64 = (1_u64 << 30) as f64;

/// Prices in dollars: of 1000 requests of a kind, and of a gibibyte that leaves the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    get: f64,
    put: f64,
    list: f64,
    delete: f64,
    out: f64,
}

impl Default for Prices {
    /// Those of S3 Standard in us-east-1 at the end of 2025, for programs in the same region.
    fn default() -> Self {
        Self { get: 0.0004, put: 0.005, list: 0.005, delete: 0.0, out: 0.0 }
    }
}

impl Prices {
    /// Those in the file that `LARDER_PRICES` names.
    pub fn from_environment() -> anyhow::Result<Self> {
        let Some(path) = env::var_os(PRICES).filter(|path| !path.is_empty()) else {
            return Ok(Self::default());
        };
        let named = || format!("{PRICES}: {}", Path::new(&path).display());
        Self::parse(&fs::read_to_string(&path).with_context(named)?).with_context(named)
    }

    /// Reads lines of a kind and a price. A kind that is missing costs what it usually does.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut prices = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong =
                || format!("'{line}' is not a kind (get, put, list, delete, out) and a price");
            let (kind, price) = line.split_once(char::is_whitespace).with_context(wrong)?;
            let price = price.trim().parse().ok().filter(|price: &f64| price.is_finite());
            let price = price.filter(|price| *price >= 0.0).with_context(wrong)?;
            match kind {
                "get" => prices.get = price,
                "put" => prices.put = price,
                "list" => prices.list = price,
                "delete" => prices.delete = price,
                "out" => prices.out = price,
                _ => bail!(wrong()),
            }
        }
        Ok(prices)
    }

    /// Metrics with what their requests cost, if there are any.
    pub fn added_to(&self, mut metrics: String) -> String {
        let found = |kind: &str, of: &str| {
            let name = format!("larder_objects_{of}_total{{kind=\"{kind}\"}}");
            values(&metrics).find(|(other, _)| *other == name).map(|(_, value)| value)
        };
        let Some(gets) = found("get", "requests") else { return metrics };
        let requests = |kind| found(kind, "requests").unwrap_or_default();
        let costs = [
            ("get", gets * self.get / 1000.0),
            ("put", (requests("put") + requests("replace")) * self.put / 1000.0),
            ("list", requests("list") * self.list / 1000.0),
            ("delete", requests("delete") * self.delete / 1000.0),
            ("out", found("get", "bytes").unwrap_or_default() / GIB * self.out),
        ];
        let name = "larder_objects_cost_dollars_total";
        let help = "What requests and traffic cost, by the prices of LARDER_PRICES.";
        // A string takes everything.
        let _ = writeln!(metrics, "# HELP {name} {help}\n# TYPE {name} counter");
        for (kind, cost) in costs {
            let _ = writeln!(metrics, "{name}{{kind=\"{kind}\"}} {cost}");
        }
        metrics
    }
}

/// The metrics in a text, with their labels, and their values.
pub fn values(metrics: &str) -> impl Iterator<Item = (&str, f64)> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name, value.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_and_wrong_ones_are_named() {
        let prices = Prices::parse("# of my server\nget 0.1\nput\t2 # much\n\n").unwrap();
        assert_eq!(prices, Prices { get: 0.1, put: 2.0, ..Prices::default() });
        for line in ["get", "get x", "take 1", "put -1", "out inf"] {
            let error = Prices::parse(line).unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
    }

    #[test]
    fn requests_cost_what_the_prices_say() {
        let metrics = "# HELP x\nlarder_objects_requests_total{kind=\"get\"} 2000\n\
                       larder_objects_requests_total{kind=\"put\"} 100\n\
                       larder_objects_requests_total{kind=\"replace\"} 900\n\
                       larder_objects_bytes_total{kind=\"get\"} 1073741824\n";
        let prices = Prices { get: 1.0, put: 3.0, list: 1.0, delete: 1.0, out: 0.5 };
        let text = prices.added_to(metrics.to_owned());
        let cost = |kind: &str| {
            let name = format!("larder_objects_cost_dollars_total{{kind=\"{kind}\"}}");
            values(&text).find(|(other, _)| *other == name).unwrap().1
        };
        let costs = ["get", "put", "list", "delete", "out"].map(cost);
        assert_eq!(costs.map(|cost| (cost * 100.0).round() as u64), [200, 300, 0, 0, 50]);
        assert_eq!(prices.added_to("larder_waits 0\n".to_owned()), "larder_waits 0\n");
    }
}
