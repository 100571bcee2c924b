//! Devices and streams on stores that misbehave as networks, servers and other writers do.

mod cache;
mod clones;
mod damage;
mod deletions;
mod encryption;
mod histories;
mod interleavings;
mod journal;
mod leases;
mod lost_replies;
mod outages;
mod refusals;
mod replies;
mod runbook;
mod server;
mod streams;
mod support;
mod tending;
