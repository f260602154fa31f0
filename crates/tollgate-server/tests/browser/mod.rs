//! The pages in a real Chromium. `harness.mjs` runs one test of a file against a service; the files say what a reader sees.
//!
//! `./test` installs Chromium, playwright-core and axe-core.

use std::path::Path;
use std::process::Command;

use tollgate_testkit::{packages, program};

use crate::service::{Directory, Service};

/// Runs a test of a file in a browser.
fn browse(file: &str, test: &str, service: &Service, token: Option<&str>) {
    let (Some(modules), Some(node), Some(chromium)) =
        (packages("TOLLGATE_NODE"), program("node"), program("chromium"))
    else {
        return;
    };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let mut command = Command::new(node);
    command.arg(directory.join("harness.mjs")).arg(directory.join(file)).arg(test);
    command.arg(format!("http://{}", service.address)).args(token);
    command.env("TOLLGATE_NODE", modules).env("CHROMIUM", chromium);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [said, failed] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && said.contains(&format!("passed: {test}")), "{said}{failed}");
}

fn with_token(policy: &str) -> Service {
    let directory = Directory::new();
    directory.write("token", "sesame");
    Service::start_in(directory, &format!("admin: {{ token_file: ./token }}\n{policy}"))
}

const POLICY: &str = "
tiers: { free: {}, gold: {} }
default_tier: free
tenants: { acme: { tier: gold } }
limits:
  - { name: per-user, key: [user], token_bucket: { rate: 6/h, burst: 5 } }
  - { name: uploads, match: { path: /upload/* }, key: [tenant, user], fixed_window: { limit: 100, window: 24h } }
  - { name: reports, match: { path: /report }, key: [tenant], sliding_log: { limit: 20, window: 24h } }
  - { name: candidate, shadow: true, key: [user], sliding_counter: { limit: 2, window: 24h } }
  - { name: by-limit, match: { path: /named }, key: [limit], sliding_log: { limit: 10, window: 30d }, tiers: { gold: { limit: 2 } } }
";

/// Tests of a file, each with a service of its own.
macro_rules! browser_tests {
    ($file:literal: $($test:ident on $service:expr $(, token $token:literal)?;)+) => {
        $(#[test]
        fn $test() {
            let token = None::<&str>$(.or(Some($token)))?;
            browse($file, stringify!($test), &$service, token);
        })+
    };
}

mod dashboard {
    use super::*;

    browser_tests! { "dashboard.mjs":
        every_limit_and_its_state_are_on_the_page_without_a_click on with_token(POLICY);
        numbers_move_under_load on Service::start(POLICY);
        a_hot_key_appears_and_is_explained on Service::start(POLICY);
        peek_and_reset_need_the_admin_token on with_token(POLICY), token "sesame";
        a_lost_connection_is_said_and_recovers on Service::start(POLICY);
        a_gateway_and_a_shared_store_are_shown_in_words_first on Service::start(POLICY);
        no_view_has_a_serious_fault_for_accessibility on Service::start(POLICY);
        everything_works_by_keyboard on Service::start(POLICY);
        an_empty_service_explains_what_to_send on Service::start(POLICY);
    }
}

mod playground {
    use super::*;

    browser_tests! { "playground.mjs":
        stepping_shows_the_token_bucket_of_tb_1 on Service::start("limits: []");
        stepping_shows_a_small_queue_and_the_windows_of_fw_1_and_sl_1 on Service::start("limits: []");
        stepping_shows_the_fraction_that_decides_in_sc_1 on Service::start("limits: []");
        a_first_visit_plays_a_story_up_to_its_moment on Service::start("limits: []");
        arrivals_are_added_and_removed_by_click_and_by_key on Service::start("limits: []");
        sliders_change_the_decisions_the_policy_and_the_address on Service::start("limits: []");
        faults_are_said_at_their_place_and_the_last_run_stays on Service::start("limits: []");
        everything_works_by_keyboard on Service::start("limits: []");
        all_stories_are_accessible_in_both_themes_and_at_both_sizes on Service::start("limits: []");
    }
}
