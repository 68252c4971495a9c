! Every function of the module FTI, with variables of all types.
!
!     fti STEPS RESULTS
!
! RESULTS/result.<rank>: the sum, and the step that it restarted from. Ends with 1 where a condition does not hold. The
! communicator 0 has all ranks; any other is an error.
program main
  use FTI
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int16, int32, int64, real32, real64
  implicit none

  interface
    type(c_ptr) function c_realloc(address, bytes) bind(c, name='realloc')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: address
      integer(c_size_t), value :: bytes
    end function
  end interface

  ! A type of the program.
  type, bind(c) :: particle
    real(c_double) :: place(2)
    integer(c_int) :: step
  end type

  integer, target :: step
  integer, pointer :: protected_step
  integer :: world, error, status, id, steps, restarted, i, unit
  integer(int32) :: bytes
  integer(int64) :: long_bytes
  integer(int64), target :: total
  integer(int8), target :: tiny_number
  integer(int16), target :: small_numbers(2, 3)
  real(real32), target :: single(2)
  real(real64), pointer :: double(:, :, :)
  complex(real32), target :: single_complex
  complex(real64), allocatable, target :: double_complex(:)
  logical, target :: flag(3)
  character(7), target :: text(2)
  integer, target :: matrix(4, 4), values(3, 2)
  type(FTI_type) :: particle_type
  type(c_ptr) :: address
  type(particle), pointer :: particles(:)
  character(4096) :: argument, results, rank

  call get_command_argument(1, argument)
  read (argument, *) steps
  call get_command_argument(2, results)
  call get_environment_variable('HOLDFAST_RANK', rank)

  world = 1
  call FTI_Init('', world, error)
  call expect(error == FTI_NSCS, 'a communicator that MPI refuses')
  world = 0
  call FTI_Init('', world, error)
  call expect(error == FTI_SCES .and. world == 0, 'FTI_Init')

  step = 0
  total = 0
  restarted = 0
  allocate (double(2, 1, 2), double_complex(2))
  call set(0)
  address = c_realloc(c_null_ptr, particle_bytes(1))
  call c_f_pointer(address, particles, [1])
  particles(1) = particle([0d0, 0d0], 0)

  call FTI_InitType(particle_type, 0, error)
  call expect(error == FTI_NSCS, 'a type without a size')
  call FTI_InitType(particle_type, int(particle_bytes(1)), error)
  call expect(error == FTI_SCES, 'FTI_InitType')
  protected_step => step
  call FTI_Protect(1, protected_step, error)
  call expect(error == FTI_SCES, 'a pointer to integer(4)')
  call FTI_Protect(2, total, error)
  call expect(error == FTI_SCES, 'integer(8)')
  call FTI_Protect(3, tiny_number, error)
  call expect(error == FTI_SCES, 'integer(1)')
  call FTI_Protect(4, small_numbers, error)
  call expect(error == FTI_SCES, 'integer(2)')
  call FTI_Protect(5, single, error)
  call expect(error == FTI_SCES, 'real(4)')
  call FTI_Protect(6, double, error)
  call expect(error == FTI_SCES, 'real(8)')
  call FTI_Protect(7, single_complex, error)
  call expect(error == FTI_SCES, 'complex(4)')
  call FTI_Protect(8, double_complex, error)
  call expect(error == FTI_SCES, 'complex(8)')
  call FTI_Protect(9, flag, error)
  call expect(error == FTI_SCES, 'logical')
  call FTI_Protect(10, text, error)
  call expect(error == FTI_SCES, 'character')
  call FTI_Protect(11, c_loc(particles), 1, particle_type, error)
  call expect(error == FTI_SCES, 'an address')
  call FTI_Protect(12, matrix(1:4:2, :), error)
  call expect(error == FTI_NSCS, 'elements that are not contiguous')

  call FTI_Status(status)
  call FTI_getIDFromString('values', i)
  call expect((i == -1) .eqv. (status == 0), 'FTI_getIDFromString')
  call FTI_setIDFromString('values', id)
  call expect(id > 11 .and. (status == 0 .or. i == id), 'FTI_setIDFromString')
  call FTI_Protect(id, values, error)
  call FTI_SetAttribute(id, 'values of the steps', FTI_ATTRIBUTE_NAME, error)
  call expect(error == FTI_SCES, 'a name')
  call FTI_SetAttribute(id, shape(values), FTI_ATTRIBUTE_DIM, error)
  call expect(error == FTI_SCES, 'a shape of integer(4)')
  call FTI_SetAttribute(id, int(shape(values), int64), FTI_ATTRIBUTE_DIM, error)
  call expect(error == FTI_SCES, 'a shape of integer(8)')
  call FTI_SetAttribute(id, 'values', FTI_ATTRIBUTE_DIM, error)
  call expect(error == FTI_NSCS, 'a name for a shape')
  call FTI_SetAttribute(id, [4, -1], FTI_ATTRIBUTE_DIM, error)
  call expect(error == FTI_NSCS, 'a negative shape')
  call FTI_RecoverVarInit(error)
  call expect(error == FTI_SCES, 'FTI_RecoverVarInit')
  call FTI_RecoverVar(id, error)
  call expect(error == FTI_SCES .and. (status == 0 .or. all(values == 7)), 'FTI_RecoverVar')
  call FTI_RecoverVarFinalize(error)
  call expect(error == FTI_SCES, 'FTI_RecoverVarFinalize')
  values = 7
  call FTI_GetStoredSize(11, bytes)
  call FTI_GetStoredSize(11, long_bytes)
  call expect(bytes == long_bytes, 'FTI_GetStoredSize')
  if (status /= 0) then
    call expect(bytes > particle_bytes(1), 'the stored size')
    call FTI_Realloc(11, address, error)
    call expect(error == FTI_SCES, 'FTI_Realloc')
    call FTI_Snapshot(error)
    call expect(error == FTI_SCES, 'FTI_Snapshot recovers')
    call expect(long_bytes == particle_bytes(step + 1), 'a particle for each step')
    call c_f_pointer(address, particles, [step + 1])
    call expect(all([(particles(i + 1)%step == i .and. particles(i + 1)%place(2) == i/3d0, i=0, step)]), 'particles')
    call compare_all(step)
    restarted = step
  else
    call expect(bytes == 0, 'nothing is stored')
    call FTI_Recover(error)
    call expect(error == FTI_NREC, 'nothing to recover')
  end if

  do while (step < steps)
    step = step + 1
    total = total + step*(this_rank() + 1)
    call set(step)
    address = c_realloc(address, particle_bytes(step + 1))
    call c_f_pointer(address, particles, [step + 1])
    particles(step + 1) = particle([step*1d0, step/3d0], step)
    call FTI_Protect(11, address, int(step + 1, int64), particle_type, error)
    call expect(error == FTI_SCES, 'an address, and a count of integer(8)')
    if (mod(step, 2) == 0) then
      call FTI_Checkpoint(step, 3, error)
      call expect(error == FTI_DONE, 'FTI_Checkpoint')
    else
      call incremental_checkpoint
    end if
  end do
  call FTI_Snapshot(error)
  call expect(error == FTI_SCES, 'no snapshot is due')
  call FTI_Checkpoint(step, 5, error)
  call expect(error == FTI_NSCS, 'level 5')

  open (newunit=unit, file=trim(results)//'/result.'//trim(rank), action='write')
  write (unit, '(i0,1x,i0)') total, restarted
  close (unit)
  call FTI_Finalize(error)
  call expect(error == FTI_SCES, 'FTI_Finalize')

contains

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    if (holds) return
    print '(3a)', 'fti.f90: ', what, ' failed'
    call exit(1)
  end subroutine

  ! All variables, the last one first.
  subroutine incremental_checkpoint
    call FTI_InitICP(step, 3, .true., error)
    call expect(error == FTI_SCES, 'FTI_InitICP')
    call FTI_AddVarICP(id, error)
    call expect(error == FTI_SCES, 'FTI_AddVarICP')
    do i = 11, 1, -1
      call FTI_AddVarICP(i, error)
      call expect(error == FTI_SCES, 'FTI_AddVarICP')
    end do
    call FTI_FinalizeICP(error)
    call expect(error == FTI_SCES, 'FTI_FinalizeICP')
    call FTI_InitICP(step, 3, .false., error)
    call expect(error == FTI_SCES, 'FTI_InitICP that is not activated')
    call FTI_FinalizeICP(error)
    call expect(error == FTI_SCES, 'FTI_FinalizeICP without a checkpoint')
  end subroutine

  integer function this_rank()
    read (rank, *) this_rank
  end function

  integer(c_size_t) function particle_bytes(number)
    integer, intent(in) :: number
    type(particle) :: one
    particle_bytes = number*c_sizeof(one)
  end function

  include 'values.inc'

  subroutine compare_all(number)
    integer, intent(in) :: number
    call compare(number)
    call expect(total == number*(number + 1)/2*(this_rank() + 1), 'the sum')
  end subroutine
end program
