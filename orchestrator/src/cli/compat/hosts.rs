//! `scr_glob_hosts`, and the functions of SCR's module `scr_hostlist`.

use clap::Parser;
use holdfast_core::hostlist;
use holdfast_model::NodeName;

use super::arguments::{parse, usage};
use super::result::{CompatError, ExitResult, NO, failed, print, printed, refused};

/// Work with host lists
#[derive(Parser)]
#[command(name = "scr_glob_hosts", no_binary_name = true, infer_long_args = true, disable_help_flag = true)]
struct GlobArgs {
    /// Print the number of hosts
    #[arg(short, long)]
    count: bool,
    /// Print the Nth host: 1 is the first, -1 the last
    #[arg(short, long, allow_negative_numbers = true)]
    nth: Option<i64>,
    /// The host list
    #[arg(short = 'h', long, value_name = "HOSTS")]
    hosts: Option<String>,
    /// The hosts of the first list that are not in the second
    #[arg(short, long, value_name = "HOSTS:HOSTS")]
    minus: Option<String>,
    /// The hosts that are in both lists
    #[arg(short, long, value_name = "HOSTS:HOSTS")]
    intersection: Option<String>,
    /// The host list, or the second one, if it is not in the word of its option
    #[arg(value_name = "HOSTS", conflicts_with = "hosts")]
    list: Option<String>,
    /// Show the options
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

pub(super) fn glob_hosts(words: &[String]) -> ExitResult {
    let args: GlobArgs = parse(words)?;
    // `--minus "a[1-4]": "a2"`, as the manual prints it.
    let with_second = |pair: &String| match &args.list {
        Some(second) if pair.ends_with(':') => Ok(format!("{pair}{second}")),
        Some(_) => Err(usage::<GlobArgs>("both host lists are in the word of the option")),
        None => Ok(pair.clone()),
    };
    let hosts = match (args.hosts.as_ref(), &args.minus, &args.intersection) {
        (Some(hosts), ..) => expand(hosts)?,
        (None, Some(pair), _) => combine(&with_second(pair)?, hostlist::subtract)?,
        (None, None, Some(pair)) => combine(&with_second(pair)?, hostlist::intersect)?,
        (None, None, None) => match &args.list {
            Some(hosts) => expand(hosts)?,
            None => return Err(usage::<GlobArgs>("a host list is required").into()),
        },
    };
    if let Some(index) = args.nth {
        let Ok(host) = hostlist::nth(&hosts, index) else {
            // On standard output: scripts read it there.
            print(format!("scr_glob_hosts: ERROR: Host index ({index}) is out of range for specified host list."))?;
            return Ok(NO);
        };
        printed(host)
    } else if args.count {
        printed(hosts.len())
    } else {
        printed(hostlist::compress(&hosts))
    }
}

pub(super) fn expand(list: &str) -> Result<Vec<NodeName>, CompatError> {
    hostlist::expand(list).map_err(|error| failed(&error))
}

/// The names that the lists before and behind the colon result in, in the order of their numbers.
fn combine(pair: &str, operation: fn(&[NodeName], &[NodeName]) -> Vec<NodeName>) -> Result<Vec<NodeName>, CompatError> {
    let (left, right) =
        pair.rsplit_once(':').ok_or_else(|| usage::<GlobArgs>("two host lists with a colon between are required"))?;
    sorted(&operation(&expand(left)?, &expand(right)?))
}

fn sorted(hosts: &[NodeName]) -> Result<Vec<NodeName>, CompatError> {
    expand(&hostlist::compress(hosts))
}

/// The functions of scr_hostlist
#[derive(Parser)]
#[command(name = "scr_hostlist", no_binary_name = true, infer_long_args = true)]
enum HostlistArgs {
    /// Print the names of a list, separated by blanks
    Expand { list: String },
    /// Print the list of these names
    Compress { names: Vec<String> },
    /// Print the names of the first list that are not in the second
    Diff { first: String, second: String },
    /// Print the names that are in both lists
    Intersect { first: String, second: String },
}

pub(super) fn hostlist(words: &[String]) -> ExitResult {
    let names = |hosts: Vec<NodeName>| hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let text = match parse(words)? {
        HostlistArgs::Expand { list } => names(expand(&list)?),
        HostlistArgs::Compress { names } => {
            let hosts: Vec<NodeName> = names.into_iter().map(NodeName::new).collect();
            let list = hostlist::compress(&hosts);
            // Names that the list would not contain again.
            if expand(&list)?.len() != hosts.len() {
                return Err(refused(format!("{list:?} is not a list of these names")));
            }
            list
        }
        HostlistArgs::Diff { first, second } => {
            names(sorted(&hostlist::subtract(&expand(&first)?, &expand(&second)?))?)
        }
        HostlistArgs::Intersect { first, second } => {
            names(sorted(&hostlist::intersect(&expand(&first)?, &expand(&second)?))?)
        }
    };
    printed(&text)
}
