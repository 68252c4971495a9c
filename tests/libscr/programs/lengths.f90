! CHARACTER arguments of many lengths.
!
!     lengths RESULTS
!
! RESULTS/result.<rank>: the number of calls that were checked.
program lengths
  use iso_c_binding, only: c_null_char
  use iso_fortran_env, only: int64
  implicit none
  include 'scrf.h'
  character(len=SCR_MAX_FILENAME) :: path, expected, results
  character(len=:), allocatable :: name, file, huge_name
  character(len=16) :: text
  character(len=1) :: short
  integer :: error, rank, length, status, unit, checked, valid

  call get_command_argument(1, results)
  call get_environment_variable('HOLDFAST_RANK', text)
  read (text, *) rank
  checked = 0
  call scr_init(error)
  if (error /= SCR_SUCCESS) stop 3
  ! The length of each argument varies at run time; blanks at the end do not count.
  do length = 1, 40
    allocate (character(len=length) :: name)
    name(:) = repeat('n', (length + 1)/2)
    call scr_start_output(name, SCR_FLAG_CHECKPOINT, error)
    if (error /= SCR_SUCCESS) stop 4
    call scr_route_file(file_of(rank, length), expected, error)
    if (error /= SCR_SUCCESS) stop 5
    ! A buffer that holds the path exactly, and one that is too short.
    allocate (character(len=len_trim(expected)) :: file)
    call scr_route_file(file_of(rank, length), file, error)
    if (error /= SCR_SUCCESS .or. file /= expected) stop 6
    call scr_route_file(file_of(rank, length), short, error)
    if (error == SCR_SUCCESS .or. short /= ' ') stop 7
    open (newunit=unit, file=file, status='replace', action='write')
    write (unit, *) rank
    close (unit)
    valid = 1
    call scr_complete_output(valid, error)
    if (error /= SCR_SUCCESS) stop 8
    deallocate (name, file)
    checked = checked + 1
  end do
  ! As an int, this length would be 4. The NUL ends the name, so that the memory behind it is never used.
  allocate (character(len=2_int64**32 + 4) :: huge_name, stat=status)
  if (status /= 0) stop 9
  huge_name(1:16) = 'out/huge_name.'//trim(text)//c_null_char
  call scr_start_output('huge', SCR_FLAG_CHECKPOINT, error)
  if (error /= SCR_SUCCESS) stop 10
  call scr_route_file(huge_name, path, error)
  if (error /= SCR_SUCCESS) stop 11
  if (index(path, '/huge_name.'//trim(text)//' ') == 0) stop 12
  ! A name that no checkpoint can contain is an error, and the checkpoint can be given up.
  call scr_route_file('out/summary.scr', path, error)
  if (error == SCR_SUCCESS) stop 13
  call scr_route_file(repeat('n', 252), path, error)
  if (error == SCR_SUCCESS) stop 14
  valid = 0
  call scr_complete_output(valid, error)
  if (error == SCR_SUCCESS) stop 15
  checked = checked + 1
  write (path, '(a,a,i0)') trim(results), '/result.', rank
  open (newunit=unit, file=trim(path), status='replace', action='write')
  write (unit, '(i0)') checked
  close (unit)
  call scr_finalize(error)
  if (error /= SCR_SUCCESS) stop 16
contains
  ! A result whose length depends on the arguments.
  function file_of(rank, length) result(file)
    integer, intent(in) :: rank, length
    character(len=:), allocatable :: file
    character(len=32) :: digits
    write (digits, '(i0)') rank
    file = 'out/'//repeat('f', length)//'_'//trim(digits)//repeat(' ', length)
  end function
end program
