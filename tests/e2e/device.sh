# The first process of a device, see devices.rs: device.sh NAME WORLD PROGRAMS. It has its own process ids, network,
# mounts and host name already.
set -eu
name=$1 world=$2 programs=$3
# This process as the test sees it: /proc is still that of the machine.
read -r pid _ </proc/self/stat
exec 3<"$world" 4<"$programs"
hostname "$name"
mount -t proc proc /proc
# What is local to a node. Control groups are hidden because the two devices would share them.
for directory in /tmp /dev/shm /run /sys/fs/cgroup; do
    [ ! -d "$directory" ] || mount -t tmpfs -o mode=1777 tmpfs "$directory"
done
# Shared directories that are hidden now.
share() {
    [ -d "$2" ] || { mkdir -p "$2" && mount --no-canonicalize --bind "/proc/self/fd/$1" "$2"; }
}
share 3 "$world"
share 4 "$programs"
exec 3<&- 4<&-
# Where root's account is locked, sshd would refuse the key.
mount --bind "$world/shadow" /etc/shadow
mkdir -p -m 755 /run/sshd
echo "$pid" >"$world/$name.pid.new"
mv "$world/$name.pid.new" "$world/$name.pid"
exec "$(command -v sshd)" -D -e -f "$world/sshd_config"
