//! From what the policy file says of Redis to a store.

use std::path::PathBuf;

use tollgate_policy::Redis;
use url::Url;

use crate::link::{Password, Settings, SettingsError, Tls, Topology};
use crate::store::RedisStore;

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// What the policy file says makes no sense.
    #[error("store.redis: {0}")]
    Settings(#[from] SettingsError),
    /// A file with a password cannot be read.
    #[error("store.redis: the password in {file} cannot be read: {error}")]
    Password {
        /// Which.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// URLs that say who we are do not agree, or say it twice.
    #[error("store.redis: {0}")]
    Credentials(&'static str),
}

impl RedisStore {
    /// Refuses what [`open`](Self::open) would refuse, and connects to nobody. It needs no runtime.
    ///
    /// # Errors
    ///
    /// When the settings make no sense, or a file cannot be read.
    pub fn check(redis: &Redis) -> Result<(), OpenError> {
        Ok(settings(redis)?.check()?)
    }
}

/// How to reach the servers.
pub(crate) fn settings(redis: &Redis) -> Result<Settings, OpenError> {
    let mut credentials = Credentials { username: redis.username.clone(), password: None };
    if let Some(file) = &redis.password_file {
        credentials.password = Some(password(file)?);
    }
    let mut urls = Vec::with_capacity(redis.urls.len());
    for url in &redis.urls {
        urls.push(credentials.take_from(url, redis)?);
    }
    let topology = match &redis.sentinel {
        _ if redis.cluster => Topology::Cluster,
        None => Topology::Single,
        Some(sentinel) => Topology::Sentinel {
            master: sentinel.master.clone(),
            username: sentinel.username.clone(),
            password: sentinel.password_file.as_deref().map(password).transpose()?,
        },
    };
    let path = |file: &Option<String>| file.as_ref().map(PathBuf::from);
    Ok(Settings {
        urls,
        topology,
        username: credentials.username,
        password: credentials.password,
        tls: redis.tls.as_ref().map(|tls| Tls {
            ca_file: path(&tls.ca_file),
            cert_file: path(&tls.cert_file),
            key_file: path(&tls.key_file),
        }),
        deadline: redis.deadline,
    })
}

struct Credentials {
    username: Option<String>,
    password: Option<Password>,
}

impl Credentials {
    /// The URL without the name and password in it, as many write them. All URLs are of one store, so they agree.
    fn take_from(&mut self, text: &str, redis: &Redis) -> Result<String, OpenError> {
        let Ok(mut url) = Url::parse(text) else { return Ok(text.to_owned()) }; // which is refused with the reason
        let decoded =
            |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let username = Some(decoded(url.username())).filter(|name| !name.is_empty());
        let password = url.password().map(decoded).map(Password::Text);
        if username.is_none() && password.is_none() {
            return Ok(text.to_owned());
        }
        if redis.username.is_some() || redis.password_file.is_some() {
            return Err(OpenError::Credentials(
                "a URL says who we are, and so do `username` or `password_file`: say it once",
            ));
        }
        if redis.sentinel.is_some() {
            return Err(OpenError::Credentials(
                "a Sentinel's URL has a password: write `sentinel: { password_file }` for theirs, `password_file` for the servers'",
            ));
        }
        let is_another_password = self.password.is_some() && self.password != password;
        let is_another_name = self.username.is_some() && self.username != username;
        if is_another_password || is_another_name {
            return Err(OpenError::Credentials(
                "the URLs have different names or passwords: all servers have the same",
            ));
        }
        (self.username, self.password) = (username, password);
        // Neither can fail: it has a host.
        let _ = (url.set_username(""), url.set_password(None));
        Ok(url.into())
    }
}

/// The password in a file, which is read anew for each connection. It must be there from the beginning.
fn password(file: &str) -> Result<Password, OpenError> {
    let password = Password::File(PathBuf::from(file));
    match password.read() {
        Ok(_) => Ok(password),
        Err(error) => Err(OpenError::Password { file: file.to_owned(), error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tollgate_policy::{Policy, StoreSettings};

    fn read(redis: &str) -> Result<Settings, String> {
        let text = format!("{{ store: {{ redis: {redis} }}, limits: [] }}");
        let policy = Policy::read(Path::new("tollgate.yaml"), &text).map_err(|faults| faults.to_string())?;
        let StoreSettings::Redis(redis) = policy.store else { panic!("it is Redis") };
        settings(&redis).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_may_say_who_we_are() {
        let read = read("{ url: 'redis://tollgate:p%40ss@127.0.0.1:7000/3' }").expect("it makes sense");
        assert_eq!(read.urls, ["redis://127.0.0.1:7000/3"]);
        assert_eq!((read.username.as_deref(), read.password), (Some("tollgate"), Some("p@ss".into())));
    }

    #[test]
    fn who_we_are_is_said_once() {
        for (redis, words) in [
            ("{ url: 'redis://a:b@127.0.0.1', username: a }", "say it once"),
            ("{ urls: ['redis://a:b@127.0.0.1', 'redis://a:c@127.0.0.1'], cluster: true }", "different"),
            ("{ urls: ['redis://:b@127.0.0.1'], sentinel: { master: m } }", "sentinel: { password_file }"),
            ("{ url: 'redis://127.0.0.1', password_file: /nowhere }", "/nowhere cannot be read"),
        ] {
            let refused = read(redis).expect_err(redis);
            assert!(refused.contains(words), "{redis}: {refused}");
        }
    }

    #[test]
    fn settings_are_checked_without_a_runtime() {
        for (redis, expected) in [
            ("{ url: 'redis://127.0.0.1:1' }", None),
            ("{ urls: ['redis://127.0.0.1:1', 'redis://127.0.0.1:2'], cluster: true }", None),
            ("{ url: 'http://127.0.0.1' }", Some("unknown scheme `http`")),
            ("{ url: 'redis://127.0.0.1', password_file: /nowhere }", Some("/nowhere cannot be read")),
            ("{ url: 'rediss://127.0.0.1', tls: { ca_file: /nowhere } }", Some("/nowhere")),
            ("{ url: 'redis://127.0.0.1', deadline: 1h }", Some("between 1 ms and 60 s")),
        ] {
            let text = format!("{{ store: {{ redis: {redis} }}, limits: [] }}");
            let policy = Policy::read(Path::new("tollgate.yaml"), &text).expect(redis);
            let StoreSettings::Redis(settings) = policy.store else { panic!("it is Redis") };
            let refused = RedisStore::check(&settings).err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(refused, None, "{redis}"),
                Some(words) => {
                    assert!(refused.as_ref().is_some_and(|told| told.contains(words)), "{redis}: {refused:?}")
                }
            }
        }
    }
}
