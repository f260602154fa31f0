//! Asks sentinels where the primary is.

use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::{sleep, timeout};

use super::connector::{Address, Connector, ask_all, text};
use super::error::text_of;
use super::task::jittered;

/// How long each of them has to answer, its connection included.
const PATIENCE: Duration = Duration::from_millis(200);

/// How often they are asked whether the primary is still the same: an old one that lives on does not say so itself.
const POLL: Duration = Duration::from_secs(1);

/// The sentinels of one primary.
pub(super) struct Sentinels {
    pub(super) addresses: Vec<Address>, // the one that answered last comes first
    pub(super) connector: Connector,    // with their own password
    pub(super) master: String,
}

impl Sentinels {
    /// Where the primary is, as the first that answers has it.
    pub(super) async fn ask(&mut self) -> Result<Address, String> {
        let mut reasons = Vec::new();
        for index in 0..self.addresses.len() {
            let sentinel = &self.addresses[index];
            let reason = match timeout(PATIENCE, self.ask_one(sentinel)).await {
                Ok(Ok(address)) => {
                    self.addresses[..=index].rotate_right(1);
                    return Ok(address);
                }
                Ok(Err(reason)) => reason,
                Err(_) => format!("{sentinel} did not answer within {PATIENCE:?}"),
            };
            reasons.push(reason);
        }
        Err(format!("no sentinel knows where `{}` is: {}", self.master, reasons.join("; ")))
    }

    /// Waits until they name another primary.
    pub(super) async fn names_another(&mut self, than: &Address) -> Address {
        loop {
            sleep(jittered(POLL)).await;
            match self.ask().await {
                Ok(address) if address != *than => return address,
                _ => {} // while they cannot be asked, the primary that answers is kept
            }
        }
    }

    async fn ask_one(&self, sentinel: &Address) -> Result<Address, String> {
        let mut connection = self.connector.connect(sentinel).await?;
        let mut question = Pipeline::new();
        question.cmd("SENTINEL").arg("get-master-addr-by-name").arg(&self.master);
        let answers = ask_all(&mut connection.redis, &question, PATIENCE).await;
        match answers.map_err(|reason| format!("{sentinel}: {reason}"))?.as_slice() {
            [Value::Nil] => Err(format!("{sentinel} does not know it")),
            [Value::ServerError(error)] => Err(format!("{sentinel} answers `{}`", text_of(error))),
            [Value::Array(parts)] => match &parts[..] {
                [host, port] => text(host)
                    .zip(text(port).and_then(|port| port.parse().ok()))
                    .map(|(host, port)| Address { host: host.into(), port })
                    .ok_or_else(|| format!("{sentinel} answers without an address")),
                _ => Err(format!("{sentinel} answers without an address")),
            },
            _ => Err(format!("{sentinel} answers without an address")),
        }
    }
}
