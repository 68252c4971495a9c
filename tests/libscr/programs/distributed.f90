! An array that is distributed over the ranks by its last dimension, recovered by other numbers of ranks.
!
!     distributed STEPS RESULTS
!
! RESULTS/result.<rank>: the id of the checkpoint that was recovered.
program distributed
  use holdfast
  implicit none
  integer, parameter :: rows = 7, columns = 23
  integer :: rank, ranks, error, id, steps, own, first, unit, i, j
  integer, target :: step
  real(8), allocatable, target :: field(:, :)
  logical :: found
  character(1000) :: argument, results

  call get_command_argument(1, argument)
  read (argument, *) steps
  call get_command_argument(2, results)
  call holdfast_init(error)
  if (error /= HOLDFAST_SUCCESS) error stop 1
  call holdfast_rank(rank, ranks, error)
  own = columns/ranks
  if (rank < mod(columns, ranks)) own = own + 1
  first = rank*(columns/ranks) + min(rank, mod(columns, ranks))
  allocate (field(rows, own))
  field = -1
  step = 0
  id = 0
  call holdfast_protect(1, 'step', step, error)
  call holdfast_uniform(1, error)
  if (error /= HOLDFAST_SUCCESS) error stop 2
  call holdfast_protect(2, 'field', field, error)
  call holdfast_distribute(2, shape(field), 2, error)
  if (error /= HOLDFAST_SUCCESS) error stop 3
  call holdfast_have_checkpoint(found, error)
  if (found) then
    call holdfast_recover(id, error)
    if (error /= HOLDFAST_SUCCESS .or. id /= step) error stop 4
    do j = 1, own
      do i = 1, rows
        if (field(i, j) /= step + 1000*i + 100000*(first + j)) error stop 5
      end do
    end do
  end if
  do while (step < steps)
    step = step + 1
    do j = 1, own
      do i = 1, rows
        field(i, j) = step + 1000*i + 100000*(first + j)
      end do
    end do
    call holdfast_checkpoint(step, HOLDFAST_LEVEL_PARITY, error)
    if (error /= HOLDFAST_SUCCESS) error stop 6
  end do
  write (argument, '(2a,i0)') trim(results), '/result.', rank
  open (newunit=unit, file=trim(argument))
  write (unit, '(i0)') id
  close (unit)
  call holdfast_finalize(error)
end program
