#!/bin/sh
# count.sh STATE STEPS [FROM]: adds up the numbers from 1 to STEPS. Keeps the step and the sum in the file STATE;
# continues from the file FROM.
state=$1 steps=$2 from=$3
step=0 sum=0
[ -z "$from" ] || read -r step sum <"$from"
echo "starting after step $step"
while [ "$step" -lt "$steps" ]; do
    step=$((step + 1)) sum=$((sum + step))
    # Renamed into place: the file is complete at every moment.
    echo "$step $sum" >"$state.new" && mv "$state.new" "$state"
    sleep 0.02
done
echo "sum $sum"
