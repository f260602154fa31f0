//! The real gateway, with a policy of the test's own.

use std::net::SocketAddr;

use tollgate_testkit::{Http, address_in};

use super::backend::Backend;
use crate::service::{Directory, Service, TOLLGATE};

/// A gateway that runs until it is dropped.
pub(crate) struct Gateway {
    pub(crate) service: Service,
    pub(crate) address: SocketAddr,
}

impl Gateway {
    /// Starts one before an application, by a policy without `listen` and with `gateway` as far as it goes beyond that.
    pub(crate) fn start(backend: &Backend, gateway: &str, policy: &str) -> Self {
        Self::before(&format!("http://{}", backend.address), gateway, policy)
    }

    /// Likewise, before whatever is there.
    pub(crate) fn before(upstream: &str, gateway: &str, policy: &str) -> Self {
        let directory = Directory::new();
        let file = directory.write("tollgate.yaml", &text(upstream, gateway, policy));
        let mut command = std::process::Command::new(TOLLGATE);
        let mut service = Service::run(directory, command.args(["serve", "--config"]).arg(&file));
        let address = address_in(&service.process.line_with("listens on"));
        Self { service, address }
    }

    /// Puts another policy in force, before whatever is there. What the service says of it.
    pub(crate) fn reload(&self, upstream: &str, gateway: &str, policy: &str) -> serde_json::Value {
        self.service.directory.write("tollgate.yaml", &text(upstream, gateway, policy));
        let told = self.service.connect().post("/v1/reload", &serde_json::json!({}));
        assert_eq!(told.status, 200, "{told:?}");
        crate::service::json_of(&told)
    }

    pub(crate) fn connect(&self) -> Http {
        Http::connect(self.address)
    }
}

fn text(upstream: &str, gateway: &str, policy: &str) -> String {
    format!(
        "listen: {{ http: '127.0.0.1:0', gateway: '127.0.0.1:0' }}\n\
         gateway: {{ upstream: {upstream}, {gateway} }}\n{policy}"
    )
}
