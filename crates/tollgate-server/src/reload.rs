//! Another policy, while the service runs.

use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tollgate_policy::{Policy, Tenants};

use crate::admin::Admin;
use crate::logs;
use crate::resp::Password;
use crate::service::{Service, unix_time};
use crate::source::{Source, Stamp};

/// Where the policy comes from, and whether it has changed there.
pub(crate) struct Reloader {
    pub(crate) source: Source,
    started: Policy,      // the settings that are read at the start only, without the tenants
    reloading: Mutex<()>, // one reload at a time
    looked: Mutex<Option<Stamp>>, // at the last look
}

/// What a reload has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Reloaded {
    reloaded: bool,
    limits: usize,
    changes: Vec<String>,
    needs_restart: Vec<&'static str>,
}

impl Reloader {
    pub(crate) fn new(source: Source, started: Policy) -> Self {
        // A list of tenants is not to stay in memory after a reload has replaced it.
        let started = Policy { tenants: Tenants::default(), ..started };
        Self { source, started, reloading: Mutex::default(), looked: Mutex::default() }
    }

    /// Whether a file has changed since it was last read, and all are as they were at the last look. A file that still changes may
    /// not be complete.
    pub(crate) fn has_changed(&self) -> bool {
        if self.source.is_built_in() {
            return false;
        }
        let now = self.source.stamp();
        let is_settled = std::mem::replace(&mut *self.looked.lock(), now.clone()) == now;
        // A change during a reload is found at the next look.
        let Some(_idle) = self.reloading.try_lock() else { return false };
        is_settled && now.is_some() && self.source.last_stamp() != now
    }
}

impl Service {
    /// Reads the policy file and its tenants file and puts them in force. Where one of them has a fault, returns it, and the old
    /// policy stays.
    pub(crate) fn reload(&self, why: &str) -> Result<Reloaded, String> {
        let source = &self.reloader.source;
        if source.is_built_in() {
            return Err(
                "there is no policy file: the built-in policy runs; start with --config FILE".to_owned()
            );
        }
        let _one_at_a_time = self.reloader.reloading.lock();
        let result = source.read().and_then(|policy| {
            if policy == Policy::default() && !self.engine.policy().limits.is_empty() {
                return Err(format!(
                    "{source}: the file is empty; to let every request pass, write `limits: []`"
                ));
            }
            let environment_values = policy.environment_values.clone();
            logs::hide(&environment_values);
            self.put_in_force(policy).map_err(|error| environment_values.hide(&error).into_owned())
        });
        match &result {
            Ok(reloaded) => {
                self.metrics.reloaded(Ok(unix_time()));
                let changes = match reloaded.changes.len() {
                    0 => "nothing has changed".to_owned(),
                    1..=3 => reloaded.changes.join("; "),
                    more => format!("{}; and {} more", reloaded.changes[..2].join("; "), more - 2),
                };
                self.dashboard.log.add("reload", format!("the policy was reloaded: {changes}"));
                tracing::info!(file = %source, why, changes = reloaded.changes.join("; "), "policy reloaded");
                for setting in &reloaded.needs_restart {
                    tracing::warn!(setting, "changed in the policy file, and takes effect at the next start");
                }
            }
            Err(error) => {
                self.metrics.reloaded(Err(()));
                let text = "the policy file has a fault, and the old policy stays in force: see the log";
                self.dashboard.log.add("reload", text.to_owned());
                tracing::error!(file = %source, why, error, "policy not reloaded; the old one stays in force");
            }
        }
        result
    }

    fn put_in_force(&self, policy: Policy) -> Result<Reloaded, String> {
        let admin = Admin::new(policy.admin_token_file.as_deref())?;
        let resp_password = Password::new(policy.resp_password_file.as_deref())?;
        let before = self.engine.policy();
        let limits = policy.changes_from(&before).into_iter().map(|(limit, change)| {
            let limit = before.environment_values.as_written(policy.environment_values.as_written(&limit));
            format!("limit `{limit}` {change}")
        });
        let sections =
            policy.sections_changed_from(&before).into_iter().map(|name| format!("`{name}` has changed"));
        let changes = limits.chain(sections).collect();
        drop(before);
        let reloaded = Reloaded {
            reloaded: true,
            limits: policy.limits.len(),
            changes,
            needs_restart: needs_restart(&self.reloader.started, &policy),
        };
        // The store stays the one that was opened, and limits have to be such as it can keep.
        let started = &self.reloader.started;
        let mut policy = Policy { store: started.store.clone(), ..policy };
        policy.environment_values.extend(started.environment_values.clone());
        self.engine.reload(policy).map_err(|error| error.to_string())?;
        self.admin.replace(admin);
        self.resp_password.replace(resp_password);
        self.metrics.follow(&self.engine.policy());
        self.has_reloaded();
        Ok(reloaded)
    }
}

/// What is read at the start only.
fn needs_restart(before: &Policy, after: &Policy) -> Vec<&'static str> {
    let changed = [
        ("listen", before.listen != after.listen),
        ("gateway", before.gateway.is_some() != after.gateway.is_some()),
        ("tls", before.tls != after.tls),
        ("store", before.store != after.store),
        ("record", before.record != after.record),
        ("telemetry", before.telemetry != after.telemetry),
    ];
    changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
}

/// How often the file is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);
