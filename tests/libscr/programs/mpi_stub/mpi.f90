! What fti.f90 needs of an MPI, for ranks that do not communicate.
subroutine MPI_Comm_rank(communicator, rank, error)
  implicit none
  integer, intent(in) :: communicator
  integer, intent(out) :: rank, error
  call from_environment('HOLDFAST_RANK', rank)
  error = communicator
end subroutine

subroutine MPI_Comm_size(communicator, ranks, error)
  implicit none
  integer, intent(in) :: communicator
  integer, intent(out) :: ranks, error
  call from_environment('HOLDFAST_RANKS', ranks)
  error = communicator
end subroutine

! The other communicator: every second rank.
subroutine MPI_Comm_split(communicator, color, key, part, error)
  implicit none
  integer, intent(in) :: communicator, color, key
  integer, intent(out) :: part, error
  part = 10 + color
  error = merge(communicator, -1, key >= 0)
end subroutine

subroutine MPI_Finalize(error)
  implicit none
  integer, intent(out) :: error
  error = 0
end subroutine

subroutine from_environment(name, number)
  implicit none
  character(*), intent(in) :: name
  integer, intent(out) :: number
  character(16) :: text
  call get_environment_variable(name, text)
  read (text, *) number
end subroutine
