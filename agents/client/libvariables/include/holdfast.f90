! Checkpoints of variables in memory, carried out by Holdfast's agents: the functions of holdfast.h, where they are
! described, for Fortran.
!
!     gfortran -o heat /usr/local/include/holdfast.f90 heat.f90 -lholdfast_variables
!     holdfast run job.yaml                      (with `checkpoint: {source: variables}`)
!
! Every subroutine sets `ierror` to HOLDFAST_SUCCESS or to another value of those below; the text of the error is then
! printed on standard error, and holdfast_error returns it.
module holdfast
  use, intrinsic :: iso_c_binding, only: c_char, c_f_pointer, c_int, c_loc, c_null_char, c_ptr, c_size_t
  use, intrinsic :: iso_fortran_env, only: error_unit, int8, int16, int32, int64, real32, real64
  implicit none
  private

  public :: holdfast_init, holdfast_finalize, holdfast_rank
  public :: holdfast_define_type, holdfast_protect, holdfast_distribute, holdfast_uniform, holdfast_unprotect
  public :: holdfast_have_checkpoint, holdfast_stored_size, holdfast_recover
  public :: holdfast_checkpoint, holdfast_snapshot, holdfast_should_exit
  public :: holdfast_error, holdfast_print_errors

  ! ierror
  integer, parameter, public :: HOLDFAST_SUCCESS = 0
  integer, parameter, public :: HOLDFAST_FAILURE = 1
  integer, parameter, public :: HOLDFAST_NO_CHECKPOINT = 2
  integer, parameter, public :: HOLDFAST_NOT_KEPT = 3

  ! Types of elements, for holdfast_protect with an address.
  integer, parameter, public :: HOLDFAST_CHAR = 0
  integer, parameter, public :: HOLDFAST_SHORT = 1
  integer, parameter, public :: HOLDFAST_INT = 2
  integer, parameter, public :: HOLDFAST_LONG = 3
  integer, parameter, public :: HOLDFAST_FLOAT = 8
  integer, parameter, public :: HOLDFAST_DOUBLE = 9

  ! Levels of a checkpoint.
  integer, parameter, public :: HOLDFAST_LEVEL_LOCAL = 1
  integer, parameter, public :: HOLDFAST_LEVEL_PARTNER = 2
  integer, parameter, public :: HOLDFAST_LEVEL_PARITY = 3
  integer, parameter, public :: HOLDFAST_LEVEL_PREFIX = 4

  ! call holdfast_protect(id, name, variable, ierror)
  ! call holdfast_protect(id, name, address, count, type, ierror)
  !
  ! `variable` is a scalar or an array of any rank and of the types below, contiguous, with the attribute TARGET,
  ! ALLOCATABLE or POINTER. Without such an attribute, the compiler may keep its value in a register. Call it again
  ! after the variable was allocated again.
  interface holdfast_protect
    module procedure protect_address
    module procedure protect_int8, protect_int16, protect_int32, protect_int64
    module procedure protect_real32, protect_real64, protect_complex32, protect_complex64
    module procedure protect_logical, protect_character
  end interface

  interface
    integer(c_int) function c_init() bind(c, name='holdfast_init')
      import :: c_int
    end function
    integer(c_int) function c_finalize() bind(c, name='holdfast_finalize')
      import :: c_int
    end function
    integer(c_int) function c_rank(rank, ranks) bind(c, name='holdfast_rank')
      import :: c_int
      integer(c_int), intent(out) :: rank, ranks
    end function
    integer(c_int) function c_define_type(bytes, kind) bind(c, name='holdfast_define_type')
      import :: c_int, c_size_t
      integer(c_size_t), value :: bytes
      integer(c_int), intent(out) :: kind
    end function
    integer(c_int) function c_protect(id, name, address, count, kind) bind(c, name='holdfast_protect')
      import :: c_char, c_int, c_ptr, c_size_t
      integer(c_int), value :: id, kind
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: address
      integer(c_size_t), value :: count
    end function
    integer(c_int) function c_distribute(id, dimensions, sizes, dimension) bind(c, name='holdfast_distribute')
      import :: c_int, c_size_t
      integer(c_int), value :: id, dimensions, dimension
      integer(c_size_t), intent(in) :: sizes(*)
    end function
    integer(c_int) function c_uniform(id) bind(c, name='holdfast_uniform')
      import :: c_int
      integer(c_int), value :: id
    end function
    integer(c_int) function c_unprotect(id) bind(c, name='holdfast_unprotect')
      import :: c_int
      integer(c_int), value :: id
    end function
    integer(c_int) function c_have_checkpoint(flag) bind(c, name='holdfast_have_checkpoint')
      import :: c_int
      integer(c_int), intent(out) :: flag
    end function
    integer(c_int) function c_stored_size(id, bytes) bind(c, name='holdfast_stored_size')
      import :: c_int, c_size_t
      integer(c_int), value :: id
      integer(c_size_t), intent(out) :: bytes
    end function
    integer(c_int) function c_recover(id) bind(c, name='holdfast_recover')
      import :: c_int
      integer(c_int), intent(out) :: id
    end function
    integer(c_int) function c_checkpoint(id, level) bind(c, name='holdfast_checkpoint')
      import :: c_int
      integer(c_int), value :: id, level
    end function
    integer(c_int) function c_snapshot(taken) bind(c, name='holdfast_snapshot')
      import :: c_int
      integer(c_int), intent(out) :: taken
    end function
    integer(c_int) function c_should_exit(flag) bind(c, name='holdfast_should_exit')
      import :: c_int
      integer(c_int), intent(out) :: flag
    end function
    type(c_ptr) function c_error() bind(c, name='holdfast_error')
      import :: c_ptr
    end function
    subroutine c_print_errors(print) bind(c, name='holdfast_print_errors')
      import :: c_int
      integer(c_int), value :: print
    end subroutine
    integer(c_size_t) function c_strlen(text) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

contains

  subroutine holdfast_init(ierror)
    integer, intent(out) :: ierror
    ierror = c_init()
  end subroutine

  subroutine holdfast_finalize(ierror)
    integer, intent(out) :: ierror
    ierror = c_finalize()
  end subroutine

  subroutine holdfast_rank(rank, ranks, ierror)
    integer, intent(out) :: rank, ranks, ierror
    integer(c_int) :: own, all
    own = -1
    all = -1
    ierror = c_rank(own, all)
    rank = own
    ranks = all
  end subroutine

  ! A type of elements of `bytes` bytes.
  subroutine holdfast_define_type(bytes, kind, ierror)
    integer, intent(in) :: bytes
    integer, intent(out) :: kind, ierror
    integer(c_int) :: defined
    defined = -1
    ierror = c_define_type(int(bytes, c_size_t), defined)
    kind = defined
  end subroutine

  ! The variables of this id on all ranks are the blocks of one array, in the order of the ranks: another number of
  ! ranks can recover it. `sizes` is shape(variable) on this rank; `dimension`, from 1, is the one along which the array
  ! is distributed.
  subroutine holdfast_distribute(id, sizes, dimension, ierror)
    integer, intent(in) :: id, sizes(:), dimension
    integer, intent(out) :: ierror
    integer(c_size_t) :: reversed(size(sizes))
    ! Row-major order.
    reversed = int(sizes(size(sizes):1:-1), c_size_t)
    ierror = c_distribute(int(id, c_int), int(size(sizes), c_int), reversed, int(size(sizes) - dimension, c_int))
  end subroutine

  ! The variable has the same value on all ranks: another number of ranks can recover it.
  subroutine holdfast_uniform(id, ierror)
    integer, intent(in) :: id
    integer, intent(out) :: ierror
    ierror = c_uniform(int(id, c_int))
  end subroutine

  subroutine holdfast_unprotect(id, ierror)
    integer, intent(in) :: id
    integer, intent(out) :: ierror
    ierror = c_unprotect(int(id, c_int))
  end subroutine

  subroutine holdfast_have_checkpoint(flag, ierror)
    logical, intent(out) :: flag
    integer, intent(out) :: ierror
    integer(c_int) :: have
    have = 0
    ierror = c_have_checkpoint(have)
    flag = have /= 0
  end subroutine

  ! The bytes of the variable in the newest checkpoint; 0 if it is not there.
  subroutine holdfast_stored_size(id, bytes, ierror)
    integer, intent(in) :: id
    integer(int64), intent(out) :: bytes
    integer, intent(out) :: ierror
    integer(c_size_t) :: stored
    stored = 0
    ierror = c_stored_size(int(id, c_int), stored)
    bytes = stored
  end subroutine

  subroutine holdfast_recover(id, ierror)
    integer, intent(out) :: id, ierror
    integer(c_int) :: recovered
    recovered = -1
    ierror = c_recover(recovered)
    id = recovered
  end subroutine

  subroutine holdfast_checkpoint(id, level, ierror)
    integer, intent(in) :: id, level
    integer, intent(out) :: ierror
    ierror = c_checkpoint(int(id, c_int), int(level, c_int))
  end subroutine

  subroutine holdfast_snapshot(taken, ierror)
    logical, intent(out) :: taken
    integer, intent(out) :: ierror
    integer(c_int) :: flag
    flag = 0
    ierror = c_snapshot(flag)
    taken = flag /= 0
  end subroutine

  subroutine holdfast_should_exit(flag, ierror)
    logical, intent(out) :: flag
    integer, intent(out) :: ierror
    integer(c_int) :: exits
    exits = 0
    ierror = c_should_exit(exits)
    flag = exits /= 0
  end subroutine

  ! The text of the last error.
  subroutine holdfast_error(text)
    character(*), intent(out) :: text
    character(kind=c_char), pointer :: characters(:)
    type(c_ptr) :: last
    integer :: i
    last = c_error()
    call c_f_pointer(last, characters, [c_strlen(last)])
    text = ' '
    do i = 1, min(len(text), size(characters))
      text(i:i) = characters(i)
    end do
  end subroutine

  subroutine holdfast_print_errors(print)
    logical, intent(in) :: print
    call c_print_errors(merge(1_c_int, 0_c_int, print))
  end subroutine

  subroutine protect_address(id, name, address, count, kind, ierror)
    integer, intent(in) :: id, kind
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: address
    integer(int64), intent(in) :: count
    integer, intent(out) :: ierror
    if (count < 0) then
      write (error_unit, '(a,i0,a)') 'holdfast: holdfast_protect: variable ', id, ': the number of elements is negative'
      ierror = HOLDFAST_FAILURE
      return
    end if
    ierror = c_protect(int(id, c_int), trim(name)//c_null_char, address, int(count, c_size_t), int(kind, c_int))
  end subroutine

  ! A copy of the elements would be protected instead of the variable if it were not contiguous.
  subroutine protect_contiguous(id, name, address, contiguous, count, kind, ierror)
    integer, intent(in) :: id, kind
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: address
    logical, intent(in) :: contiguous
    integer(int64), intent(in) :: count
    integer, intent(out) :: ierror
    if (.not. contiguous) then
      write (error_unit, '(3a)') 'holdfast: holdfast_protect: the elements of ', trim(name), ' are not contiguous'
      ierror = HOLDFAST_FAILURE
      return
    end if
    call protect_address(id, name, address, count, kind, ierror)
  end subroutine

  subroutine protect_int8(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    integer(int8), intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), HOLDFAST_CHAR, ierror)
  end subroutine

  subroutine protect_int16(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    integer(int16), intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), HOLDFAST_SHORT, ierror)
  end subroutine

  subroutine protect_int32(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    integer(int32), intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), HOLDFAST_INT, ierror)
  end subroutine

  subroutine protect_int64(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    integer(int64), intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), HOLDFAST_LONG, ierror)
  end subroutine

  subroutine protect_real32(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    real(real32), intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), HOLDFAST_FLOAT, ierror)
  end subroutine

  subroutine protect_real64(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    real(real64), intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), HOLDFAST_DOUBLE, ierror)
  end subroutine

  subroutine protect_complex32(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    complex(real32), intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        2*size(variable, kind=int64), HOLDFAST_FLOAT, ierror)
  end subroutine

  subroutine protect_complex64(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    complex(real64), intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        2*size(variable, kind=int64), HOLDFAST_DOUBLE, ierror)
  end subroutine

  subroutine protect_logical(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    logical, intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        storage_size(variable, int64)/8*size(variable, kind=int64), HOLDFAST_CHAR, ierror)
  end subroutine

  subroutine protect_character(id, name, variable, ierror)
    integer, intent(in) :: id
    character(*), intent(in) :: name
    character(*), intent(inout), target :: variable(..)
    integer, intent(out) :: ierror
    call protect_contiguous(id, name, c_loc(variable), is_contiguous(variable), &
        len(variable, int64)*size(variable, kind=int64), HOLDFAST_CHAR, ierror)
  end subroutine
end module
