//! The real binary, as its users run it. One program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod adaptive;
mod admin_calls;
mod broken_output;
mod connection_bounds;
mod cross_site;
mod environment;
mod envoy;
mod envoy_client;
mod forward_auth;
mod gateway;
mod grpc;
mod grpc_port;
mod lab;
mod malformed;
mod malformed_http;
mod malformed_policy;
mod memory;
mod metrics;
mod operation;
mod proto;
mod proxies;
mod readme;
mod redis;
mod redis_cell;
mod reloads;
mod resp;
mod resp_clients;
mod resp_idle;
mod retry_after;
mod retrying_clients;
mod service;
mod site;
mod startup;
mod story;
mod third_party_tools;
