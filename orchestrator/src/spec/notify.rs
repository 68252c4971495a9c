//! `notify`: where events of the job are reported.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use super::keys::{Section, choices, keys, words};
use super::supervision::names_no_program;
use super::value_kinds::{Choice, duration, path, text};

/// The default time limit of one delivery.
const DELIVERED_WITHIN: Duration = Duration::from_secs(10);

/// Where events are reported, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    pub to: Recipient,
    /// None twice, and at least one.
    pub events: Vec<NotifiedEvent>,
    /// Of one attempt.
    pub time_limit: Duration,
}

/// What receives the reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipient {
    Webhook {
        url: Url,
        secret_file: Option<PathBuf>,
    },
    /// A program and its arguments.
    Command(Vec<String>),
}

/// A kind of event that can be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifiedEvent {
    NodeDown,
    Relaunched,
    FailureExplained,
    Stopping,
    DrainIncomplete,
    Finished,
}

impl Choice for NotifiedEvent {
    const AVAILABLE: &'static [(&'static str, Self)] = &[
        ("node_down", NotifiedEvent::NodeDown),
        ("relaunched", NotifiedEvent::Relaunched),
        ("failure_explained", NotifiedEvent::FailureExplained),
        ("stopping", NotifiedEvent::Stopping),
        ("drain_incomplete", NotifiedEvent::DrainIncomplete),
        ("finished", NotifiedEvent::Finished),
    ];
}

keys! {
    Notification => Option<Notification>;
    /// An address that gets a POST request with a JSON document for each event:
    /// `https://hooks.example.org/holdfast`.
    webhook = text().optional(),
    /// A file with a secret, which the requests have as `Authorization: Bearer …`. Relative to the directory of the
    /// spec file.
    secret_file = path().optional(),
    /// A program and its arguments, as a list; no shell is involved. It gets the same document as its standard input.
    command = words(),
    /// The events: `node_down`, `relaunched`, `failure_explained`, `stopping`, `drain_incomplete`, `finished`. Default:
    /// all of these.
    events = choices::<NotifiedEvent>(),
    /// After this time an attempt has failed.
    time_limit = duration().or(DELIVERED_WITHIN),
    |section| {
        let events = events.unwrap_or_else(|| NotifiedEvent::AVAILABLE.iter().map(|(_, event)| *event).collect());
        if secret_file.is_some() && webhook.is_none() {
            section.mistake("secret_file", "`secret_file` has no effect without `webhook`", "leave it out");
        }
        let to = match (webhook, command) {
            (Some(_), Some(_)) => {
                let message = "`command` and `webhook` exclude each other";
                section.mistake("command", message, "write two entries of the list");
                None
            }
            (Some(webhook), None) => {
                let absolute = |file| section.reader().absolute(&section.path_of("secret_file"), file);
                let secret_file = secret_file.map(absolute);
                address(section, &webhook, secret_file.is_some()).map(|url| Recipient::Webhook { url, secret_file })
            }
            (None, Some(command)) if names_no_program(&command) => {
                section.mistake("command", "the command is empty", "write `command: [./notify, --mail]`");
                None
            }
            (None, Some(command)) => Some(Recipient::Command(command)),
            (None, None) => {
                let help = "write `webhook: https://…` or `command: [./notify]`";
                section.mistake("webhook", "nothing receives the events", help);
                None
            }
        };
        Some(Notification { to: to?, events, time_limit })
    }
}

/// The address of a webhook, checked.
fn address(section: &Section<'_>, text: &str, has_secret: bool) -> Option<Url> {
    let help = "write it as `https://hooks.example.org/holdfast`";
    let url = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        Ok(_) => {
            section.mistake("webhook", "only `https` and `http` are possible", help);
            return None;
        }
        Err(error) => {
            section.mistake("webhook", format!("this is no address: {error}"), help);
            return None;
        }
    };
    if has_secret && url.scheme() == "http" && !is_loopback(&url) {
        let message = "the secret would be sent to another machine without encryption";
        section.mistake("webhook", message, "write `https://…`, or leave `secret_file` out");
    }
    Some(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
