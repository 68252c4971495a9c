! Every function of the module holdfast, with variables of all types.
!
!     variables STEPS RESULTS
!
! RESULTS/result.<rank>: the sum, and the id of the checkpoint that was recovered. Ends with 1 where a condition does
! not hold. Snapshots of level 3 are due after each millisecond.
program main
  use holdfast
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int16, int64, real32, real64
  implicit none

  ! A type of the program.
  type, bind(c) :: cell
    real(c_double) :: value
    integer(c_int) :: step
  end type

  integer, target :: step
  integer :: error, steps, rank, ranks, cell_type, recovered, i, unit
  integer(int64) :: bytes, cell_bytes
  integer(int64), target :: total
  integer(int8), target :: tiny_number
  integer(int16), target :: small_numbers(2, 3)
  real(real32), target :: single(2)
  real(real64), pointer :: double(:, :, :)
  complex(real32), target :: single_complex
  complex(real64), allocatable, target :: double_complex(:)
  logical, target :: flag(3)
  character(7), target :: text(2)
  integer, target :: matrix(4, 4)
  type(cell), allocatable, target :: cells(:), longer(:)
  type(cell) :: one
  logical :: found, taken
  character(4096) :: argument, results, message
  character(8) :: rank_text

  call get_command_argument(1, argument)
  read (argument, *) steps
  call get_command_argument(2, results)

  call holdfast_print_errors(.false.)
  call holdfast_rank(rank, ranks, error)
  call holdfast_error(message)
  call expect(error == HOLDFAST_FAILURE .and. index(message, 'not initialised') > 0, 'holdfast_error')
  call holdfast_print_errors(.true.)
  call holdfast_init(error)
  call expect(error == HOLDFAST_SUCCESS, 'holdfast_init')
  call holdfast_rank(rank, ranks, error)
  call expect(error == HOLDFAST_SUCCESS .and. ranks == 6, 'holdfast_rank')

  step = 0
  total = 0
  recovered = 0
  cell_bytes = int(c_sizeof(one), int64)
  allocate (double(2, 1, 2), double_complex(2))
  call set(0)
  call holdfast_define_type(int(cell_bytes), cell_type, error)
  call expect(error == HOLDFAST_SUCCESS, 'holdfast_define_type')
  call holdfast_protect(1, 'step', step, error)
  call expect(error == HOLDFAST_SUCCESS, 'integer(4)')
  call holdfast_protect(2, 'total', total, error)
  call expect(error == HOLDFAST_SUCCESS, 'integer(8)')
  call holdfast_protect(3, 'tiny number', tiny_number, error)
  call expect(error == HOLDFAST_SUCCESS, 'integer(1)')
  call holdfast_protect(4, 'small numbers', small_numbers, error)
  call expect(error == HOLDFAST_SUCCESS, 'integer(2)')
  call holdfast_protect(5, 'single', single, error)
  call expect(error == HOLDFAST_SUCCESS, 'real(4)')
  call holdfast_protect(6, 'double', double, error)
  call expect(error == HOLDFAST_SUCCESS, 'real(8)')
  call holdfast_protect(7, 'single complex', single_complex, error)
  call expect(error == HOLDFAST_SUCCESS, 'complex(4)')
  call holdfast_protect(8, 'double complex', double_complex, error)
  call expect(error == HOLDFAST_SUCCESS, 'complex(8)')
  call holdfast_protect(9, 'flag', flag, error)
  call expect(error == HOLDFAST_SUCCESS, 'logical')
  call holdfast_protect(10, 'text', text, error)
  call expect(error == HOLDFAST_SUCCESS, 'character')
  call holdfast_protect(12, 'matrix', matrix(1:4:2, :), error)
  call expect(error == HOLDFAST_FAILURE, 'elements that are not contiguous')
  call holdfast_protect(12, 'matrix', matrix, error)
  call expect(error == HOLDFAST_SUCCESS, 'an array')
  call holdfast_unprotect(12, error)
  call expect(error == HOLDFAST_SUCCESS, 'holdfast_unprotect')
  call holdfast_unprotect(12, error)
  call expect(error == HOLDFAST_FAILURE, 'holdfast_unprotect again')

  call holdfast_have_checkpoint(found, error)
  call expect(error == HOLDFAST_SUCCESS, 'holdfast_have_checkpoint')
  call holdfast_stored_size(11, bytes, error)
  call expect(error == HOLDFAST_SUCCESS .and. (bytes > cell_bytes .eqv. found), 'holdfast_stored_size')
  allocate (cells(max(bytes/cell_bytes, 1_int64)))
  cells(1) = cell(0, 0)
  call protect_cells()
  if (found) then
    call holdfast_recover(recovered, error)
    call expect(error == HOLDFAST_SUCCESS, 'holdfast_recover')
    call expect(bytes == (step + 1)*cell_bytes, 'a cell for each step')
    call expect(all([(cells(i + 1)%step == i .and. cells(i + 1)%value == i/3d0, i=0, step)]), 'cells')
    call compare_all(step)
  end if
  call holdfast_should_exit(taken, error)
  call expect(error == HOLDFAST_SUCCESS .and. .not. taken, 'holdfast_should_exit')

  do while (step < steps)
    step = step + 1
    total = total + step*(rank + 1)
    call set(step)
    allocate (longer(step + 1))
    longer(:step) = cells
    longer(step + 1) = cell(step/3d0, step)
    call move_alloc(longer, cells)
    call protect_cells()
    if (mod(step, 2) == 0) then
      call holdfast_checkpoint(step, HOLDFAST_LEVEL_PARITY, error)
      call expect(error == HOLDFAST_SUCCESS, 'holdfast_checkpoint')
      cycle
    end if
    taken = .false.
    do while (.not. taken)
      call holdfast_snapshot(taken, error)
      call expect(error == HOLDFAST_SUCCESS, 'holdfast_snapshot')
    end do
  end do
  call holdfast_checkpoint(step, 5, error)
  call expect(error == HOLDFAST_FAILURE, 'level 5')

  write (rank_text, '(i0)') rank
  open (newunit=unit, file=trim(results)//'/result.'//trim(rank_text), action='write')
  write (unit, '(i0,1x,i0)') total, recovered
  close (unit)
  call holdfast_finalize(error)
  call expect(error == HOLDFAST_SUCCESS, 'holdfast_finalize')

contains

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    if (holds) return
    print '(3a)', 'variables.f90: ', what, ' failed'
    call exit(1)
  end subroutine

  subroutine protect_cells()
    call holdfast_protect(11, 'cells', c_loc(cells), size(cells, kind=int64), cell_type, error)
    call expect(error == HOLDFAST_SUCCESS, 'an address')
  end subroutine

  include 'values.inc'

  subroutine compare_all(number)
    integer, intent(in) :: number
    call compare(number)
    call expect(total == number*(number + 1)/2*(rank + 1), 'the sum')
  end subroutine
end program
