# Installed by `holdfast compat install`: host lists, for scripts that use SCR's module.
package scr_hostlist;
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);

# The command of this name beside the module as it is installed.
my $command = dirname(abs_path(__FILE__)) . '/scr_hostlist';

# The output of a function of the command; undef if it failed.
sub run {
  my @words = @_;
  open(my $pipe, '-|', $command, @words) or return undef;
  my $line = <$pipe>;
  close($pipe) or return undef;
  $line = '' if not defined $line;
  chomp $line;
  return $line;
}

# A reference to a list of hosts as one word of a command line.
sub word {
  return join(',', @{$_[0]});
}

# expand('atlas[3,5-7]') returns ('atlas3', 'atlas5', 'atlas6', 'atlas7').
sub expand {
  my ($list) = @_;
  my $hosts = run('expand', '--', $list);
  return defined $hosts ? split(/ /, $hosts) : ();
}

# compress('atlas3', 'atlas5', 'atlas6') returns 'atlas[3,5-6]'; undef if there is no list of these names.
sub compress {
  my @hosts = @_;
  return '' if not @hosts;
  return run('compress', '--', @hosts);
}

# diff(\@first, \@second) returns the hosts of the first list that are not in the second.
sub diff {
  return split(/ /, run('diff', '--', word($_[0]), word($_[1])) // '');
}

# intersect(\@first, \@second) returns the hosts that are in both lists.
sub intersect {
  return split(/ /, run('intersect', '--', word($_[0]), word($_[1])) // '');
}

1;
