//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tollgate_policy::{MAX_POLICY_BYTES, quantity};

use crate::{commands, output};

/// Every request pays a toll in tokens: a rate limiter for every place that needs one.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service: decide requests over HTTP, gRPC as Envoy asks, and RESP, the protocol of Redis; and be a
    /// gateway, if the policy has one
    Serve(Serve),
    /// Validate a policy file and print its limits as a table
    Check {
        /// The policy file
        file: PathBuf,
        /// The policy in force now: also say what becomes of each of its limits
        #[arg(long, value_name = "OLD")]
        against: Option<PathBuf>,
        /// Warn about files that cannot be used, such as certificates and tokens, instead of refusing the policy
        #[arg(long)]
        skip_files: bool,
        #[command(flatten)]
        policy_bytes: PolicyBytes,
    },
    /// Say which limits apply to a request, why, and what would be decided when nobody has spent anything: no store is asked
    Explain {
        /// The policy file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// What the request costs, if not what the policy says
        #[arg(long)]
        cost: Option<u64>,
        #[command(flatten)]
        policy_bytes: PolicyBytes,
        /// What is known of the request, such as tenant=acme path=/api/trips
        #[arg(value_name = "ATTR=VALUE", value_parser = attribute)]
        attributes: Vec<(String, String)>,
    },
    /// Run all algorithms on the same synthetic traffic, and see what each lets pass
    Simulate(commands::simulate::Simulate),
    /// Run all algorithms, or a policy, on recorded traffic, and see what each would have denied
    Replay(Box<commands::replay::Replay>),
    /// Suggest a rate and a burst from recorded traffic, with the reasons, as a policy
    Advise(commands::advise::Advise),
    /// Serve the playground on a loopback port: step through the decisions of all algorithms on the same traffic
    Playground(commands::playground::Playground),
    /// Run the tests of a policy: requests at given times, and what is expected of each
    Test {
        /// The policy file
        policy: PathBuf,
        /// The tests; docs/lab.md says how to write them
        tests: PathBuf,
        #[command(flatten)]
        policy_bytes: PolicyBytes,
    },
    /// Watch a running service in the terminal: requests, denials, limits and hot keys
    Top(commands::top::Top),
    /// Print the policy that does what files of another rate limiter did
    Import {
        #[command(subcommand)]
        from: Import,
    },
    /// Print the JSON schema of the policy file, for editors
    Schema,
}

/// Whose files are imported.
#[derive(Debug, Subcommand)]
enum Import {
    /// The YAML files of envoyproxy/ratelimit
    Envoy {
        /// A file, or a directory: every file in it whose name does not begin with a dot, one domain per file
        #[arg(value_name = "DIR|FILE")]
        path: PathBuf,
        /// Count denied requests as the reference does, also those that another descriptor denies
        #[arg(long)]
        count_denied: bool,
        #[command(flatten)]
        policy_bytes: PolicyBytes,
    },
}

/// How large a policy file may be.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct PolicyBytes {
    /// The size of the largest policy file that is read, such as 16MiB. A tenants file may be larger
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = policy_bytes)]
    pub(crate) max_policy_bytes: u64,
}

/// How to run the service.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The policy file; without one, a built-in policy to try things with
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Serve the files of envoyproxy/ratelimit: a file, or every file in a directory whose name does not begin with a dot
    #[arg(long, value_name = "DIR")]
    pub(crate) envoy_config: Option<PathBuf>,
    /// Let the limits of --envoy-config count denied requests as the reference does
    #[arg(long, requires = "envoy_config")]
    pub(crate) count_denied: bool,
    #[command(flatten)]
    pub(crate) policy_bytes: PolicyBytes,
    /// Where to speak HTTP, instead of what the policy says. Other listeners then open only if the policy
    /// names them, and the gateway if it has one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Add synthetic traffic from a dozen tenants, which the dashboard at / shows
    #[arg(long)]
    pub(crate) demo: bool,
    /// The format of log lines [default: text on a terminal, else JSON]
    #[arg(long, value_enum)]
    pub(crate) log_format: Option<LogFormat>,
    /// The least important lines that are logged: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: tracing::Level,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Runs the command that was asked for. 0: done, 1: what it was given is refused, 2: wrong usage.
pub(crate) fn run() -> ExitCode {
    let command = Cli::parse().command;
    let is_service = matches!(command, Command::Serve(_));
    let result = match command {
        Command::Serve(options) => crate::serve::run(&options),
        Command::Check { file, against, skip_files, policy_bytes } => {
            commands::check::run(&file, against.as_deref(), skip_files, policy_bytes.max_policy_bytes)
        }
        Command::Explain { config, cost, policy_bytes, attributes } => {
            commands::explain::run(&config, cost, &attributes, policy_bytes.max_policy_bytes)
        }
        Command::Simulate(options) => commands::simulate::run(&options),
        Command::Replay(options) => commands::replay::run(&options),
        Command::Advise(options) => commands::advise::run(&options),
        Command::Playground(options) => commands::playground::run(&options),
        Command::Test { policy, tests, policy_bytes } => {
            commands::test::run(&policy, &tests, policy_bytes.max_policy_bytes)
        }
        Command::Top(options) => commands::top::run(&options),
        Command::Import { from: Import::Envoy { path, count_denied, policy_bytes } } => {
            commands::import::envoy(&path, count_denied, policy_bytes.max_policy_bytes)
        }
        Command::Schema => {
            print!("{}", tollgate_policy::schema());
            Ok(())
        }
    };
    // The output of other commands is their result. A service only prints where it listens.
    let result = if is_service { result } else { result.and_then(|()| output::finish()) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(refused) => {
            eprintln!("{refused}");
            ExitCode::FAILURE
        }
    }
}

fn policy_bytes(text: &str) -> Result<u64, String> {
    match quantity::bytes(text)? {
        0 => Err("a policy file has at least 1 byte".to_owned()),
        bytes if bytes > MAX_POLICY_BYTES => {
            Err(format!("{MAX_POLICY_BYTES} bytes are the most; use `tenants_file` for many tenants"))
        }
        bytes => Ok(bytes as u64),
    }
}

fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write an attribute as name=value, such as tenant=acme".to_owned()),
    }
}
