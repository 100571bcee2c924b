//! What the reply of a server means that refuses a request.

use std::fmt;

use http::HeaderMap;

use super::Problem;

/// Codes of refusals that go away by themselves, whatever the status.
const FOR_NOW: [&str; 18] = [
    "BadDigest",
    "IncompleteBody",
    "InternalError",
    "OperationTimedOut",
    "RequestExpired",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeTooSkewed",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServerBusy",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "XAmzContentSHA256Mismatch",
];

/// Codes that speak of the keys, with statuses that do not.
const OF_KEYS: [&str; 4] =
    ["ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"];

/// Parts of codes that say that there is no room.
const OF_ROOM: [&str; 5] =
    ["InsufficientStorage", "NotEnoughSpace", "OutOfSpace", "Quota", "StorageFull"];

/// The longest text of a server that an error repeats.
const MOST_TEXT: usize = 500;

/// A reply of a server that refuses a request.
#[derive(Debug)]
pub(super) struct Refusal {
    status: u16,
    code: String,
    text: String,
}

impl Refusal {
    pub(super) fn new(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let header = |name| headers.get(name).map(|it| String::from_utf8_lossy(it.as_bytes()));
        let text = match (header("x-amz-bucket-region"), header("location")) {
            (Some(region), _) if is_elsewhere(status) => {
                format!("the bucket is in the region {region}: set AWS_REGION").into()
            }
            (_, Some(place)) if is_elsewhere(status) => {
                format!("what is asked for is at {place}: correct the endpoint").into()
            }
            _ => String::from_utf8_lossy(body),
        };
        let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        let code = code.map(|(code, _)| code.trim().to_owned()).unwrap_or_default();
        Self { status, code, text: text.chars().take(MOST_TEXT).collect() }
    }

    /// What a reply says of the only object that a request for deletions has named.
    pub(super) fn of_deletion(status: u16, body: &[u8]) -> Option<Self> {
        let is_refused = body.windows(7).any(|part| part == b"<Error>");
        is_refused.then(|| Self::new(status, &HeaderMap::new(), body))
    }

    /// Whether a reply of this status has no other meaning for the caller.
    pub(super) fn is_one(status: u16) -> bool {
        is_elsewhere(status) || (status >= 400 && status != 404 && status != 412)
    }

    pub(super) fn problem(&self) -> Problem {
        let code = self.code.as_str();
        match self.status {
            507 => Problem::Full,
            _ if OF_ROOM.iter().any(|part| code.contains(part)) => Problem::Full,
            _ if FOR_NOW.contains(&code) => Problem::Temporary,
            _ if OF_KEYS.contains(&code) => Problem::Denied,
            401 | 403 => Problem::Denied,
            _ if code == "AccessDenied" => Problem::Denied,
            // Some servers say so although nothing is there: callers look.
            409 => Problem::Condition,
            405 | 501 | 505 => Problem::Unsupported,
            408 | 425 | 429 | 500.. => Problem::Temporary,
            _ => Problem::Other,
        }
    }
}

/// Whether a reply of this status leads to another place, where no request goes by itself.
fn is_elsewhere(status: u16) -> bool {
    (300..400).contains(&status) && status != 304
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, code, text } = self;
        let said = if code.is_empty() { text } else { code };
        write!(f, "the server answered with status {status}: {said}")
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16, code: &str) -> Problem {
        let body = format!("<?xml version='1.0'?><Error><Code>{code}</Code></Error>");
        Refusal::new(status, &HeaderMap::new(), body.as_bytes()).problem()
    }

    #[test]
    fn replies_mean_what_servers_say() {
        for (status, code) in [
            (400, "RequestTimeout"),
            (400, "IncompleteBody"),
            (400, "BadDigest"),
            (403, "RequestTimeTooSkewed"),
            (408, ""),
            (429, ""),
            (500, "InternalError"),
            (503, "SlowDown"),
            (520, ""),
            (524, ""),
        ] {
            assert_eq!(problem(status, code), Problem::Temporary, "{status} {code}");
        }
        for (status, code) in [(400, "ExpiredToken"), (401, ""), (403, "AccessDenied")] {
            assert_eq!(problem(status, code), Problem::Denied, "{status} {code}");
        }
        for (status, code) in [(507, ""), (403, "QuotaExceeded"), (507, "XMinioStorageFull")] {
            assert_eq!(problem(status, code), Problem::Full, "{status} {code}");
        }
        for code in ["ConditionalRequestConflict", "OperationAborted", "BlobAlreadyExists"] {
            assert_eq!(problem(409, code), Problem::Condition);
        }
        assert_eq!(problem(501, "NotImplemented"), Problem::Unsupported);
        assert_eq!(problem(400, "InvalidArgument"), Problem::Other);
    }

    #[test]
    fn a_list_of_deletions_may_tell_of_a_refusal() {
        let list = |of_object: &str| format!("<DeleteResult>{of_object}</DeleteResult>");
        let problem = |of_object: &str| {
            let refusal = Refusal::of_deletion(200, list(of_object).as_bytes());
            refusal.map(|it| it.problem())
        };
        assert_eq!(problem("<Deleted><Key>a</Key></Deleted>"), None);
        let refused = |code: &str| format!("<Error><Key>a</Key><Code>{code}</Code></Error>");
        assert_eq!(problem(&refused("AccessDenied")), Some(Problem::Denied));
        assert_eq!(problem(&refused("SlowDown")), Some(Problem::Temporary));
        assert_eq!(problem(&refused("InternalError")), Some(Problem::Temporary));
    }

    #[test]
    fn any_bytes_are_a_reply() {
        for body in [&b""[..], b"<Code>", b"</Code><Code>", &[0xff; 2000]] {
            let refusal = Refusal::new(400, &HeaderMap::new(), body);
            assert_eq!(refusal.problem(), Problem::Other);
            assert!(refusal.to_string().len() < 4 * MOST_TEXT);
        }
    }
}
