//! Policies made from the files of other rate limiters.

mod envoy;

pub use self::envoy::{EnvoyImport, import_envoy};
