! A program that calls no subroutine of SCR. One state file a rank, every second step.
!
!     unchanged_f RESULTS
program unchanged
  use, intrinsic :: iso_fortran_env, only: int64
  implicit none
  integer(int64) :: step = 0, total = 0, restarted
  integer :: rank
  logical :: found
  character(len=512) :: text, results
  character(len=32) :: name

  call get_environment_variable('HOLDFAST_RANK', text)
  read (text, *) rank
  call get_command_argument(1, results)
  write (name, '(a, i0, a)') 'state_', rank, '.dat'

  inquire (file=name, exist=found)
  if (found) then
     open (unit=10, file=name, status='old', form='unformatted')
     read (10) step, total
     close (10)
  end if
  restarted = step
  do while (step < 10)
     step = step + 1
     total = total + step * (rank + 1)
     if (mod(step, 2_int64) == 0) then
        open (unit=11, file=name, status='replace', form='unformatted', action='write')
        write (11) step, total
        close (11)
     end if
  end do

  write (text, '(a, a, i0)') trim(results), '/result.', rank
  open (unit=12, file=text, status='replace', action='write')
  write (12, '(i0, a, i0)') total, ' ', restarted
  close (12)
end program unchanged
