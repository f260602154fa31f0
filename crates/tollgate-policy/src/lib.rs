//! The policy file: limits, tiers, tenants, costs, and which of them apply to a request.
#![forbid(unsafe_code)]

mod fault;
mod keys;
mod policy;
mod quantity;
mod reader;
mod schema;
mod yaml;

pub use fault::{Fault, Faults};
pub use policy::{
    Adaptive, AdaptiveRates, ClientIp, Cost, FairQueue, Gateway, Headers, Identity, Ietf, KeyPart, Limit,
    Listen, Match, Memory, OnError, Policy, Record, Redis, Slots, Store, Tenant, Tier, Tls, WhenMissing,
    XRateLimit,
};
pub use schema::{reference, schema};
