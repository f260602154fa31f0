//! The policy file: limits, tiers, tenants, costs, and which of them apply to a request.
#![forbid(unsafe_code)]

mod client_address;
mod compiled;
mod engine;
mod environment_values;
mod fault;
mod headers;
mod host;
mod import;
mod keys;
mod literal_trie;
mod machine_memory;
mod path;
mod policy;
mod problem;
pub mod quantity;
mod reader;
mod reply;
mod request_attributes;
mod response;
mod schema;
mod store;
mod yaml;

pub use client_address::{AddressChain, Networks};
pub use engine::{
    Answer, CellNumbers, CellRequest, Described, DescriptorVerdict, Engine, EngineError, Explained,
    Explanation, Hits, Key, KeyStatus, LeaseStats, LimitVerdict, LoadSource, NotDecided, Override, Permits,
    PolicyInForce, Reason, Request, SentLimitVerdict, SentRule, TenantError, ThrottleError, Throttled,
    TooManyLimits, Verdict,
};
pub use environment_values::EnvironmentValues;
pub use fault::{Fault, Faults};
pub use headers::headers;
pub use host::{host_name, normal_host};
pub use import::{EnvoyImport, import_envoy};
pub use path::{has_detours, normal_path};
pub use policy::{
    Adaptive, AdaptiveRates, AddressHeader, Change, ClientIp, Cost, Dashboard, Descriptor, Entry, Envoy,
    FairQueue, Gateway, Headers, Identity, Ietf, KeyPart, Limit, Listen, Match, MaxBytes, Memory, MinRate,
    OnError, OwnLimits, Policy, Record, Redis, RedisTls, Sentinel, Slots, StoreSettings, Telemetry, Tenant,
    Tenants, TenantsFileError, Tier, Timeouts, Tls, Trust, Uncounted, UnusableFile, UpstreamHeaders,
    WhenMissing, WhyExact, Work, XRateLimit, sent_rule,
};
pub use problem::{PROBLEM_JSON, problem, problem_with_detail};
pub use reply::{Seconds, write_reply, write_throttle_reply};
pub use request_attributes::{
    Attributes, RequestAttributes, RequestFault, RequestHeaders, cut_value, is_same_host,
};
pub use response::{denial_body, denial_response, error_response, put_headers, refusal_response};
pub use schema::{reference, schema};
pub use yaml::MAX_POLICY_BYTES;

pub use store::{
    Ask, Decisions, DrawCall, Drawn, KeyState, Later, LeaseStore, LeasedKey, LimitDecision, LimitDecisions,
    PrimaryId, ReturnCall, Source, Store, StoredPermit, Unavailable,
};
