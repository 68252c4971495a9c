//! `holdfast hosts`: host lists, for scripts (`scr_glob_hosts`).

use holdfast_core::hostlist;
use holdfast_model::NodeName;
use serde_json::json;

use super::failure::Failure;
use super::output::{Style, report};
use crate::exit;

/// Work with host lists such as node[1-4,7]: count, pick, subtract, intersect, expand, compress
///
/// Accepts the options of scr_glob_hosts, except that -h is help, and prints the same, but also preserves zero padding
/// (node[08-11]) and accepts several lists in one (a[1-2],b3) and names without a number.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  holdfast hosts --count 'atlas[3,5-7,9-11]'                    7
  holdfast hosts --nth -1 'atlas[3,5-7,9-11]'                   atlas11
  holdfast hosts --minus 'atlas[3,5-7,9-11]:atlas[5,7,20]'      atlas[3,6,9-11]
  holdfast hosts --intersection 'atlas[3,5-7]:atlas[5,7,20]'    atlas[5,7]
  holdfast hosts --expand 'node[08-10]'                         node08 node09 node10, one a line
  holdfast hosts \"$SLURM_JOB_NODELIST\" --count")]
pub struct HostsArgs {
    /// The host list; several are joined
    #[arg(value_name = "LIST")]
    lists: Vec<String>,
    /// The host list, with the option of scr_glob_hosts
    #[arg(long, value_name = "LIST")]
    hosts: Vec<String>,
    /// The hosts of the first list that are not in the second
    #[arg(short, long, value_name = "LIST:LIST", conflicts_with_all = ["lists", "hosts", "intersection"])]
    minus: Option<String>,
    /// The hosts that are in both lists
    #[arg(short, long, value_name = "LIST:LIST", conflicts_with_all = ["lists", "hosts"])]
    intersection: Option<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Form {
    /// Print the number of hosts
    #[arg(short, long)]
    count: bool,
    /// Print the Nth host: 1 is the first, -1 the last
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    nth: Option<i64>,
    /// Print one list [default]
    #[arg(long)]
    compress: bool,
    /// Print one host a line
    #[arg(long)]
    expand: bool,
}

pub(super) fn run(args: HostsArgs, output: Style) -> Result<u8, Failure> {
    let hosts = selected(&args)?;
    let nth = args.form.nth.map(|index| hostlist::nth(&hosts, index)).transpose().map_err(misspelt)?;
    let shown = nth.map_or(&hosts[..], std::slice::from_ref);
    let list = hostlist::compress(shown);
    let fields = json!({"count": shown.len(), "list": list, "hosts": shown});
    output.result(&report(fields, |to| match (&args.form, nth) {
        (Form { count: true, .. }, _) => writeln!(to, "{}", hosts.len()),
        (_, Some(host)) => writeln!(to, "{host}"),
        (Form { expand: true, .. }, _) => hosts.iter().try_for_each(|host| writeln!(to, "{host}")),
        _ => writeln!(to, "{list}"),
    }))?;
    Ok(exit::FINISHED)
}

/// The hosts that the arguments select.
fn selected(args: &HostsArgs) -> Result<Vec<NodeName>, Failure> {
    let expand = |list: &str| hostlist::expand(list).map_err(misspelt);
    if let Some(pair) = args.minus.as_deref().or(args.intersection.as_deref()) {
        let (left, right) = pair.split_once(':').ok_or_else(|| {
            Failure::new(exit::USAGE, format!("`{pair}` is one host list; two are needed"))
                .remedy("separate them with a colon: 'node[1-4]:node[2,3]'")
        })?;
        let (left, right) = (expand(left)?, expand(right)?);
        let combine = if args.minus.is_some() { hostlist::subtract } else { hostlist::intersect };
        return Ok(combine(&left, &right));
    }
    if args.lists.is_empty() && args.hosts.is_empty() {
        return Err(Failure::new(exit::USAGE, "the host list is missing")
            .remedy("write a list such as 'node[1-4]', or use `--minus` or `--intersection`"));
    }
    let mut hosts = Vec::new();
    for list in args.lists.iter().chain(&args.hosts) {
        hosts.extend(expand(list)?);
    }
    Ok(hosts)
}

fn misspelt(error: hostlist::HostlistError) -> Failure {
    Failure::of(exit::USAGE, &error)
}
