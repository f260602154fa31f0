//! Third-party clients that retry after 429, through the gateway: urllib3, got and the SDK of OpenAI.
//!
//! `./test` installs them into the directories that TOLLGATE_VENV and TOLLGATE_NODE name.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tollgate_testkit::{is_long, packages, program};

use crate::gateway::running::Gateway;

/// One token per 900 ms, so that `Retry-After` is always 1. A client whose timer is a little early still finds a token.
/// A client that does not wait is denied again.
const POLICY: &str = "limits: [{ name: calls, key: [], token_bucket: { rate: 10/9s, burst: 1 } }]";

/// The answer of the application to every request.
const COMPLETION: &str = r#"{ "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "small", "choices": [
    { "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "Hello." } }] }"#;

/// An application that runs until it is dropped, and counts requests.
struct Application {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Application {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        runtime.spawn(serve(listener, Arc::clone(&requests)));
        Self { address, requests, _runtime: runtime }
    }
}

async fn serve(listener: TcpListener, requests: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let requests = Arc::clone(&requests);
        let service = service_fn(move |request: Request<Incoming>| {
            requests.fetch_add(1, Ordering::Relaxed);
            complete(request)
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn complete(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::from(COMPLETION));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    Ok(response)
}

/// Runs a client that sends requests one after another. The client prints how many succeeded and how often it retried.
///
/// Each request except the first is denied once. No request is denied twice, because the client waits for the time in
/// `Retry-After`. A request is allowed at once only if the machine stalls for 900 ms before it.
fn assert_succeeds_after_waiting(client: &mut Command) {
    let application = Application::start();
    let gateway = Gateway::before(&format!("http://{}", application.address), "", POLICY);
    let sent: usize = if is_long() { 10 } else { 3 };
    let output = client.args([format!("http://{}", gateway.address), sent.to_string()]).output().unwrap();
    let [printed, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{printed}{errors}");
    let report: Value =
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}{errors}"));
    assert_eq!(report["succeeded"], sent, "{report}");
    assert_eq!(application.requests.load(Ordering::Relaxed), sent, "denied requests stay at the gateway");

    let mut metrics = gateway.service.connect();
    let mut count = |outcome: &str| {
        let labels = format!("limit=\"calls\",outcome=\"{outcome}\",protocol=\"gateway\"");
        metrics.metric(&format!("tollgate_decisions_total{{{labels}}}")).unwrap_or_default()
    };
    let (allowed, denied) = (count("allow"), count("deny"));
    assert_eq!(allowed, sent as f64);
    assert!(denied >= 1.0 && denied < sent as f64, "{denied} denials of {sent} requests: {report}");
    assert_eq!(report["retries"].as_f64(), Some(denied), "{report}");
}

fn python(script: &str) -> Option<Command> {
    let mut command = Command::new(packages("TOLLGATE_VENV")?.join("bin/python3"));
    // The SDK of OpenAI would otherwise use a proxy that the environment names.
    command.args(["-c", script]).env("NO_PROXY", "127.0.0.1");
    Some(command)
}

/// Without `Retry-After`, it would retry at once.
const URLLIB3: &str = r#"
import json, sys, urllib3
retry = urllib3.Retry(total=3, status_forcelist=[429], respect_retry_after_header=True, backoff_factor=0)
pool = urllib3.PoolManager(retries=retry)
answers = [pool.request("GET", sys.argv[1]) for _ in range(int(sys.argv[2]))]
succeeded = sum(answer.status == 200 for answer in answers)
print(json.dumps({"succeeded": succeeded, "retries": sum(len(answer.retries.history) for answer in answers)}))
"#;

#[test]
fn urllib3_succeeds_after_the_wait_of_a_429() {
    let Some(mut client) = python(URLLIB3) else { return };
    assert_succeeds_after_waiting(&mut client);
}

/// Without `Retry-After`, it would retry after 0.375 s to 0.5 s.
const OPENAI: &str = r#"
import json, sys, openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=3)
succeeded = retries = 0
for _ in range(int(sys.argv[2])):
    answer = client.chat.completions.with_raw_response.create(
        model="small", messages=[{"role": "user", "content": "Hello?"}])
    succeeded += answer.parse().choices[0].message.content == "Hello."
    retries += answer.retries_taken
print(json.dumps({"succeeded": succeeded, "retries": retries}))
"#;

#[test]
fn the_sdk_of_openai_succeeds_after_the_wait_of_a_429() {
    let Some(mut client) = python(OPENAI) else { return };
    assert_succeeds_after_waiting(&mut client);
}

/// Without `Retry-After`, it would retry after at most 10 ms and a noise of 100 ms.
const GOT: &str = r#"
import("got").then(async ({ got }) => {
  const [url, sent] = process.argv.slice(1);
  let [succeeded, retries] = [0, 0];
  for (let i = 0; i < Number(sent); i += 1) {
    const answer = await got(url, { retry: { limit: 3, backoffLimit: 10 } });
    succeeded += answer.statusCode === 200;
    retries += answer.retryCount;
  }
  console.log(JSON.stringify({ succeeded, retries }));
}).catch((error) => { console.error(error); process.exit(1); });
"#;

#[test]
fn got_succeeds_after_the_wait_of_a_429() {
    let (Some(modules), Some(node)) = (packages("TOLLGATE_NODE"), program("node")) else { return };
    assert_succeeds_after_waiting(Command::new(node).args(["-e", GOT, "--"]).current_dir(modules));
}
