! Free form, with a preprocessor. Every step writes a checkpoint without a name, and one with a name that is output too.
!
!     free_form STEPS RESULTS
!
! RESULTS/result.<rank>: the last step, and the name of the checkpoint that it restarted from.

! The unit of a rank's file is its rank, as in many programs: those of standard error and standard input included.
#define UNIT_OF(RANK) (RANK)

program free_form

implicit none

include 'scrf.h'

character(len=SCR_MAX_FILENAME) :: name, path, file, loaded
character*16 text
integer flag, flags, valid, error, ios, rank, step, steps, last
integer i, j, k
integer, parameter :: ni=4, nj=5, nk=6
integer(kind=8), dimension(ni,nj,nk) :: w, r, expected

call get_command_argument(1, text)
read (text, *) steps
call get_environment_variable('HOLDFAST_RANK', text)
read (text, *) rank
loaded = '-'
last = 0

call SCR_INIT(error)
if (error /= SCR_SUCCESS) stop 3

call SCR_HAVE_RESTART(flag, name, error)
if (flag == 1) then
  call SCR_START_RESTART(name, error)
  if (error /= SCR_SUCCESS) stop 4
  loaded = name
  write (text, '(i5.5)') rank
  file = trim(name) // "/" // &
      "rank_" // trim(text) // ".ckpt"
  call SCR_ROUTE_FILE(file, path, error)
  if (error /= SCR_SUCCESS) stop 5
  r = 0
  open(unit=UNIT_OF(rank), file=path, form='unformatted', &
      action='read')
  read(UNIT_OF(rank), iostat=ios) last, r
  close(UNIT_OF(rank))
  forall(i=1:ni,j=1:nj,k=1:nk) expected(i,j,k) = &
      1000*last+100*rank+i+ni*(j-1+nj*(k-1))
  valid = 0
  if (ios == 0 .and. all(r == expected)) valid = 1
  call SCR_COMPLETE_RESTART(valid, error)
  if (error /= SCR_SUCCESS) stop 6
endif

do step = last + 1, steps
  forall(i=1:ni,j=1:nj,k=1:nk) w(i,j,k) = &
      1000*step+100*rank+i+ni*(j-1+nj*(k-1))

  call SCR_START_CHECKPOINT(error)
  if (error /= SCR_SUCCESS) stop 7
  call write_file('ckpt_')
  call SCR_COMPLETE_CHECKPOINT(valid, error)
  if (error /= SCR_SUCCESS) stop 8

  write (text, '(i5.5)') step
  name = "output_" // trim(text)
  flags = SCR_FLAG_CHECKPOINT + SCR_FLAG_OUTPUT
  call SCR_START_OUTPUT(name, flags, error)
  if (error /= SCR_SUCCESS) stop 9
  call write_file('output_')
  call SCR_COMPLETE_OUTPUT(valid, error)
  if (error /= SCR_SUCCESS) stop 10
end do

call get_command_argument(2, path)
write (text, '(i0)') rank
open(unit=20, file=trim(path) // '/result.' // text)
write (20, '(i0,1x,a)') steps, trim(loaded)
close(20)
call SCR_FINALIZE(error)
if (error /= SCR_SUCCESS) stop 11

contains

  subroutine write_file(dataset)
  character*(*) dataset
  write (text, '(i5.5)') step
  file = dataset // trim(text)
  write (text, '(i5.5)') rank
  file = trim(file) // "/rank_" // trim(text) // ".ckpt"
  call SCR_ROUTE_FILE(file, path, error)
  if (error /= SCR_SUCCESS) stop 12
  open(unit=UNIT_OF(rank), file=path, form='unformatted', &
      action='write')
  write(UNIT_OF(rank), iostat=ios) step, w
  close(UNIT_OF(rank))
  valid = 0
  if (ios == 0) valid = 1
  end subroutine

end program
