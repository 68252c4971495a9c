! Named checkpoints from Fortran.
!
!     fortran RESULTS
!
! RESULTS/result.<rank>: the sum, the step that it restarted from, and the name of that checkpoint.
program fortran
  implicit none
  include 'scrf.h'
  character(len=SCR_MAX_FILENAME) :: name, path, results, loaded, setting
  character(len=16) :: text
  integer :: error, flag, rank, step, sum, restarted, valid, status, unit

  call get_command_argument(1, results)
  call get_environment_variable('HOLDFAST_RANK', text)
  read (text, *) rank
  call scr_config('SCR_HALT_EXIT=0', setting, error)
  if (error /= SCR_SUCCESS .or. setting /= ' ') stop 2
  call scr_config('SCR_HALT_EXIT', setting, error)
  if (error /= SCR_SUCCESS .or. setting /= '0') stop 2
  call scr_init(error)
  if (error /= SCR_SUCCESS) stop 3
  step = 0
  sum = 0
  restarted = 0
  loaded = '-'
  call scr_have_restart(flag, name, error)
  if (error /= SCR_SUCCESS) stop 4
  if (flag == 1) then
    call scr_start_restart(loaded, error)
    if (error /= SCR_SUCCESS .or. loaded /= name) stop 5
    call scr_route_file(file_of(0, rank), path, error)
    valid = 0
    if (error == SCR_SUCCESS) then
      open (newunit=unit, file=trim(path), status='old', action='read', iostat=status)
      if (status == 0) then
        read (unit, *, iostat=status) step, sum
        if (status == 0) valid = 1
        close (unit)
      end if
    end if
    call scr_complete_restart(valid, error)
    if (error /= SCR_SUCCESS) stop 6
    restarted = step
  end if
  do while (step < 5)
    step = step + 1
    sum = sum + step*(rank + 1)
    write (name, '(a,i0)') 'step ', step
    call scr_start_output(name, SCR_FLAG_CHECKPOINT + SCR_FLAG_OUTPUT, error)
    if (error /= SCR_SUCCESS) stop 7
    call scr_route_file(file_of(step, rank), path, error)
    if (error /= SCR_SUCCESS) stop 8
    open (newunit=unit, file=trim(path), status='replace', action='write')
    write (unit, *) step, sum
    close (unit)
    valid = 1
    call scr_complete_output(valid, error)
    if (error /= SCR_SUCCESS) stop 9
    call scr_should_exit(flag, error)
    if (error /= SCR_SUCCESS .or. flag /= 0) stop 10
  end do
  write (path, '(a,a,i0)') trim(results), '/result.', rank
  open (newunit=unit, file=trim(path), status='replace', action='write')
  write (unit, '(i0,1x,i0,1x,a)') sum, restarted, trim(loaded)
  close (unit)
  call scr_finalize(error)
  if (error /= SCR_SUCCESS) stop 11
contains
  ! The files of each output have a directory of their own; a restart looks for the name of the file only.
  function file_of(step, rank) result(file)
    integer, intent(in) :: step, rank
    character(len=32) :: file
    write (file, '(a,i0,a,i0,a)') 'ckpt', step, '/rank_', rank, '.txt'
  end function
end program
