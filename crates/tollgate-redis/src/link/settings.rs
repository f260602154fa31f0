//! What a link is made of, and what is refused.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::connector::{Address, Connector, Greeting};
use super::password::{Password, Secret};
use super::tls::TlsClient;

/// Where servers are when their URL does not tell the port.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

/// As many URLs are taken.
const MOST_URLS: usize = 64;

/// A call has at least so long, since time is kept in milliseconds, and at most.
const DEADLINES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

/// How a link finds its servers, and what it tells them.
#[derive(Clone)]
pub struct Settings {
    /// `redis://host:port/database`, or `rediss://` for TLS: the server, some servers of the cluster, or the sentinels.
    pub urls: Vec<String>,
    /// What they are.
    pub topology: Topology,
    /// Who we are; the default user without.
    pub username: Option<String>,
    /// Our password, if the servers ask for one.
    pub password: Option<Password>,
    /// Certificates for `rediss://`; the system's without.
    pub tls: Option<Tls>,
    /// How long a call may take, all included.
    pub deadline: Duration,
}

impl Settings {
    /// One server that asks nobody who they are, with so long for each call.
    pub fn single(url: impl Into<String>, deadline: Duration) -> Self {
        let topology = Topology::Single;
        Self { urls: vec![url.into()], topology, username: None, password: None, tls: None, deadline }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<_> = self.urls.iter().map(|url| shown(url)).collect();
        formatter
            .debug_struct("Settings")
            .field("urls", &urls)
            .field("topology", &self.topology)
            .field("username", &self.username)
            .field("password", &self.password)
            .field("tls", &self.tls)
            .field("deadline", &self.deadline)
            .finish()
    }
}

/// What servers there are.
#[derive(Clone, Debug)]
pub enum Topology {
    /// One server.
    Single,
    /// A cluster.
    Cluster,
    /// One primary, whose place sentinels know. The URLs are theirs, and where they speak TLS the primary does too.
    Sentinel {
        /// What they call it.
        master: String,
        /// Who we are to them; the default user without.
        username: Option<String>,
        /// Our password with them, which is not that of the primary.
        password: Option<Password>,
    },
}

/// Files with certificates and keys, in PEM.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Who may sign the certificates of servers; those that the system trusts without.
    pub ca_file: Option<PathBuf>,
    /// Our certificate, for servers that ask for one.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
}

/// Why there can be no link with such settings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// There must be one, and not too many.
    #[error("{found} URLs; there must be between 1 and {MOST_URLS}")]
    HowManyUrls {
        /// So many there are.
        found: usize,
    },
    /// It is not what it should be.
    #[error("URL `{url}`: {problem}; it should be like `redis://host:6379` or `rediss://host:6379`")]
    Url {
        /// Without its password.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// They contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
    /// A file is not what it should be.
    #[error("{file}: {problem}")]
    File {
        /// Which one.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// No call would ever be answered, or fail.
    #[error("the deadline is {found:?}; it must be between 1 ms and 60 s")]
    Deadline {
        /// What it is.
        found: Duration,
    },
    /// There is nothing to run the link on.
    #[error("a link must be made where a tokio runtime is at work")]
    NoRuntime,
}

/// Settings that have been read: what the link is made of.
pub(super) struct Plan {
    pub(super) addresses: Vec<Address>,
    pub(super) connector: Connector,            // to servers
    pub(super) to_sentinels: Option<Connector>, // who have another password
}

impl Settings {
    /// Refuses what a link would refuse.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        self.read().map(drop)
    }

    pub(super) fn read(&self) -> Result<Plan, SettingsError> {
        if !(1..=MOST_URLS).contains(&self.urls.len()) {
            return Err(SettingsError::HowManyUrls { found: self.urls.len() });
        }
        if !DEADLINES.contains(&self.deadline) {
            return Err(SettingsError::Deadline { found: self.deadline });
        }
        let is_sentinel = matches!(self.topology, Topology::Sentinel { .. });
        let port = if is_sentinel { SENTINEL_PORT } else { PORT };
        let servers = self.urls.iter().map(|url| Server::read(url, port)).collect::<Result<Vec<_>, _>>()?;
        let first = &servers[0];
        if servers.iter().any(|server| server.is_tls != first.is_tls) {
            return Err(SettingsError::Contradiction(
                "either all URLs begin with `redis://` or all with `rediss://`",
            ));
        }
        if servers.iter().any(|server| server.database != first.database) {
            return Err(SettingsError::Contradiction("all URLs must name the same database"));
        }
        if matches!(self.topology, Topology::Single) && servers.len() > 1 {
            return Err(SettingsError::Contradiction("several URLs need the topology cluster or sentinel"));
        }
        if matches!(self.topology, Topology::Cluster) && first.database != 0 {
            return Err(SettingsError::Contradiction("a cluster has no other database than 0"));
        }
        if self.tls.is_some() && !first.is_tls {
            return Err(SettingsError::Contradiction(
                "certificates are given, but the URLs begin with `redis://`; with TLS they begin with `rediss://`",
            ));
        }
        let tls = if first.is_tls { Some(TlsClient::new(self.tls.as_ref())?) } else { None };
        let ours = greeting(&self.username, &self.password, first.database)?;
        let to_sentinels = match &self.topology {
            Topology::Sentinel { master, username, password } => {
                if master.is_empty() {
                    return Err(SettingsError::Contradiction(
                        "sentinels must be asked for a primary by its name",
                    ));
                }
                Some(Connector {
                    greeting: greeting(username, password, 0)?,
                    tls: tls.clone(),
                    deadline: self.deadline,
                })
            }
            Topology::Single | Topology::Cluster => None,
        };
        Ok(Plan {
            addresses: servers.iter().map(|server| server.address.clone()).collect(),
            connector: Connector { greeting: ours, tls, deadline: self.deadline },
            to_sentinels,
        })
    }
}

/// What a URL says.
struct Server {
    address: Address,
    is_tls: bool,
    database: u16,
}

impl Server {
    fn read(text: &str, default_port: u16) -> Result<Self, SettingsError> {
        let refused =
            |problem: &str| SettingsError::Url { url: shown(text).to_owned(), problem: problem.to_owned() };
        let url = Url::parse(text).map_err(|error| refused(&error.to_string()))?;
        let is_tls = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            scheme => return Err(refused(&format!("unknown scheme `{scheme}`"))),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("user and password are settings of their own"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("nothing may follow the database"));
        }
        let host = match url.host() {
            // Hosts of other schemes than the web's are left as they are written.
            Some(Host::Domain(name)) => percent_decode_str(name)
                .decode_utf8()
                .map_err(|error| refused(&error.to_string()))?
                .into_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err(refused("it names no host")),
        };
        let database = match url.path().trim_start_matches('/') {
            "" => 0,
            database => database.parse().map_err(|_| refused("the database must be a number"))?,
        };
        let port = url.port().unwrap_or(default_port);
        if port == 0 {
            return Err(refused("nobody listens on port 0"));
        }
        Ok(Self { address: Address { host: host.into(), port }, is_tls, database })
    }
}

/// A URL without its password.
fn shown(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, rest)| rest)
}

fn greeting(
    username: &Option<String>,
    password: &Option<Password>,
    database: u16,
) -> Result<Greeting, SettingsError> {
    if username.is_some() && password.is_none() {
        return Err(SettingsError::Contradiction("a user is named, but no password given"));
    }
    let secret = |password: &Password| {
        Secret::new(password).map_err(|error| match password {
            Password::File(file) => refused_file(file, &error),
            Password::Text(_) => refused_file(Path::new("password"), &error),
        })
    };
    let password = password.as_ref().map(secret).transpose()?.map(Arc::new);
    Ok(Greeting { username: username.clone(), password, database })
}

pub(super) fn refused_file(file: &Path, problem: &dyn fmt::Display) -> SettingsError {
    SettingsError::File { file: file.display().to_string(), problem: problem.to_string() }
}

#[cfg(test)]
mod tests;
