# Installed by `holdfast compat install`: SCR's parameters, for scripts that use SCR's module.
package scr_param;
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);

# The command of this name beside the module as it is installed.
my $command = dirname(abs_path(__FILE__)) . '/scr_param';

# new scr_param('/path/to/user/conf.file'); without a path, that of SCR_CONF_FILE.
sub new {
  my ($type, $file) = @_;
  return bless {file => $file}, $type;
}

# The lines that the command prints.
sub lines {
  my ($self, @words) = @_;
  local $ENV{SCR_CONF_FILE} = $self->{file} // $ENV{SCR_CONF_FILE} // '';
  open(my $pipe, '-|', $command, @words) or return ();
  my @lines = <$pipe>;
  close($pipe);
  chomp @lines;
  return @lines;
}

# $param->get('SCR_FLUSH') returns the value of a parameter; undef if it has none.
sub get {
  my ($self, $name) = @_;
  my ($value) = lines($self, 'get', '--', $name);
  return $value;
}

# $param->get_hash('CACHEDESC') returns a reference to the values of a parameter, each with the further pairs of its
# line: {0 => {BASE => {'/ssd' => {}}, SIZE => {3 => {}}}}; undef if it has none.
sub get_hash {
  my ($self, $name) = @_;
  my @lines = lines($self, 'get_hash', '--', $name);
  return undef if not @lines;
  my @path = ({});
  foreach my $line (@lines) {
    # Two blanks a level, the first included.
    my ($blanks, $key) = ($line =~ /^( *)(.*)$/);
    my $level = length($blanks) / 2 - 1;
    $path[$level + 1] = $path[$level]{$key} = {};
  }
  return $path[0];
}

1;
