! An MPI program in Fortran, written for SCR 3.1.
!
!     mpi_fortran STEPS RESULT
!
! RESULT, written by rank 0: the bits of the sum over all ranks, the number of ranks, the step that it restarted from,
! and the name of that checkpoint.
program mpi_fortran
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  include 'mpif.h'
  include 'scrf.h'
  integer, parameter :: cells = 1024
  real(real64) :: field(cells), ghost, total
  real(real64), allocatable :: sums(:)
  character(len=SCR_MAX_FILENAME) :: name, loaded, path, file, argument, version
  integer :: error, rank, ranks, left, right, steps, step, restarted, flag, valid, unit, status, i, delay

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(1, argument)
  read (argument, *) steps
  delay = 20
  left = mod(rank + ranks - 1, ranks)
  right = mod(rank + 1, ranks)
  write (file, '(a,i0)') 'field.', rank

  call SCR_INIT(error)
  call expect(error == SCR_SUCCESS, 1)
  call SCR_GET_VERSION(version, error)
  call expect(error == SCR_SUCCESS .and. version == 'v3.1.0', 2)
  step = 0
  restarted = 0
  loaded = '-'
  field = [(real(mod((rank*cells + i)*7919, 1009), real64)/1009.0_real64, i=1, cells)]
  call SCR_HAVE_RESTART(flag, name, error)
  call expect(error == SCR_SUCCESS, 3)
  if (flag == 1) then
    call SCR_START_RESTART(loaded, error)
    call expect(error == SCR_SUCCESS .and. loaded == name, 4)
    call SCR_ROUTE_FILE(file, path, error)
    valid = 0
    if (error == SCR_SUCCESS) then
      open (newunit=unit, file=trim(path), status='old', action='read', form='unformatted', iostat=status)
      if (status == 0) then
        read (unit, iostat=status) step, field
        if (status == 0) valid = 1
        close (unit)
      end if
    end if
    call SCR_COMPLETE_RESTART(valid, error)
    call expect(error == SCR_SUCCESS, 5)
    restarted = step
  end if

  do while (step < steps)
    call MPI_Sendrecv(field(cells), 1, MPI_DOUBLE_PRECISION, right, 1, ghost, 1, MPI_DOUBLE_PRECISION, left, 1, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    do i = cells, 2, -1
      field(i) = field(i) + 0.3_real64*(field(i - 1) - field(i))
    end do
    field(1) = field(1) + 0.3_real64*(ghost - field(1))
    step = step + 1
    call wait_for(delay)
    if (mod(step, 10) == 0) then
      call SCR_NEED_CHECKPOINT(flag, error)
      call expect(error == SCR_SUCCESS, 6)
      if (flag == 1) then
        write (name, '(a,i0)') 'step.', step
        call SCR_START_OUTPUT(name, SCR_FLAG_CHECKPOINT, error)
        call expect(error == SCR_SUCCESS, 7)
        call SCR_ROUTE_FILE(file, path, error)
        call expect(error == SCR_SUCCESS, 8)
        open (newunit=unit, file=trim(path), status='replace', action='write', form='unformatted', iostat=status)
        call expect(status == 0, 9)
        write (unit) step, field
        close (unit)
        call SCR_COMPLETE_OUTPUT(1, error)
        call expect(error == SCR_SUCCESS, 10)
      end if
    end if
  end do

  allocate (sums(ranks))
  call MPI_Gather(sum(field), 1, MPI_DOUBLE_PRECISION, sums, 1, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, error)
  if (rank == 0) then
    total = 0
    do i = 1, ranks
      total = total + sums(i)
    end do
    call get_command_argument(2, argument)
    open (newunit=unit, file=trim(argument), status='replace', action='write')
    write (unit, '(z16.16,1x,i0,a,i0,1x,a)') transfer(total, 0_int64), ranks, ' ranks from ', restarted, trim(loaded)
    close (unit)
  end if
  call SCR_FINALIZE(error)
  call expect(error == SCR_SUCCESS, 11)
  call MPI_Finalize(error)

contains

  subroutine expect(holds, number)
    logical, intent(in) :: holds
    integer, intent(in) :: number
    if (.not. holds) then
      write (0, '(a,i0,a,i0)') 'mpi.f90: failed at ', number, ' in rank ', rank
      call MPI_Abort(MPI_COMM_WORLD, number, error)
    end if
  end subroutine

  ! Milliseconds.
  subroutine wait_for(time)
    integer, intent(in) :: time
    double precision :: begun
    begun = MPI_Wtime()
    do while (MPI_Wtime() - begun < time*1d-3)
    end do
  end subroutine
end program
