! FTI's Fortran interface, version 1.1 and parts of later ones, carried out by Holdfast's agents. The functions are
! described in fti.h.
!
!     mpif90 -o heat /usr/local/include/fti.f90 heat.f90 -lfti
!     holdfast run job.yaml                      (with `checkpoint: {source: variables}`)
!
! Not here, and refused by the compiler: FTI_InitComplexType, FTI_AddSimpleField, FTI_AddComplexField.
module FTI
  use, intrinsic :: iso_c_binding, only: c_associated, c_bool, c_char, c_int, c_int64_t, c_loc, c_long, &
      c_null_char, c_null_ptr, c_ptr
  use, intrinsic :: iso_fortran_env, only: error_unit, int8, int16, int32, int64, real32, real64
  implicit none
  private

  public :: FTI_Init, FTI_Status, FTI_InitType, FTI_Protect, FTI_GetStoredSize, FTI_Realloc
  public :: FTI_Checkpoint, FTI_Recover, FTI_RecoverVar, FTI_Snapshot, FTI_Finalize
  public :: FTI_RecoverVarInit, FTI_RecoverVarFinalize, FTI_InitICP, FTI_AddVarICP, FTI_FinalizeICP
  public :: FTI_setIDFromString, FTI_getIDFromString, FTI_SetAttribute

  ! err
  integer, parameter, public :: FTI_DONE = 1
  integer, parameter, public :: FTI_SCES = 0
  integer, parameter, public :: FTI_NSCS = -1
  integer, parameter, public :: FTI_NREC = -2
  integer, parameter, public :: FTI_HEAD = 2

  ! flag of FTI_SetAttribute
  integer, parameter, public :: FTI_ATTRIBUTE_NAME = 1
  integer, parameter, public :: FTI_ATTRIBUTE_DIM = 2

  type, bind(c), public :: FTI_type
    private
    integer(c_int) :: id, bytes
  end type

  ! Types by the kind of their elements; the file contains their bytes.
  type(FTI_type), parameter, public :: FTI_CHARACTER1 = FTI_type(0, 1)
  type(FTI_type), parameter, public :: FTI_LOGICAL1 = FTI_type(0, 1)
  type(FTI_type), parameter, public :: FTI_INTEGER1 = FTI_type(0, 1)
  type(FTI_type), parameter, public :: FTI_INTEGER2 = FTI_type(1, 2)
  type(FTI_type), parameter, public :: FTI_INTEGER4 = FTI_type(2, 4)
  type(FTI_type), parameter, public :: FTI_INTEGER8 = FTI_type(9, 8)
  type(FTI_type), parameter, public :: FTI_REAL4 = FTI_type(8, 4)
  type(FTI_type), parameter, public :: FTI_REAL8 = FTI_type(9, 8)
  type(FTI_type), parameter, public :: FTI_COMPLEX4 = FTI_type(9, 8)
  type(FTI_type), parameter, public :: FTI_COMPLEX8 = FTI_type(10, 16)

  ! call FTI_Protect(id, variable, err)             a pointer or target of any rank
  ! call FTI_Protect(id, address, count, type, err)
  interface FTI_Protect
    module procedure protect_address, protect_address_long
    module procedure protect_int8, protect_int16, protect_int32, protect_int64
    module procedure protect_real32, protect_real64, protect_complex32, protect_complex64
    module procedure protect_logical, protect_character
  end interface

  ! call FTI_SetAttribute(id, name, FTI_ATTRIBUTE_NAME, err)
  ! call FTI_SetAttribute(id, shape, FTI_ATTRIBUTE_DIM, err)
  interface FTI_SetAttribute
    module procedure set_name, set_shape, set_shape_long
  end interface

  interface FTI_GetStoredSize
    module procedure stored_size, stored_size_long
  end interface

  interface
    integer(c_int) function c_start(configuration, rank, ranks, role) bind(c, name='holdfast_fti_start')
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: configuration(*)
      integer(c_int), value :: rank, ranks
      integer(c_int), intent(out) :: role
    end function
    integer(c_int) function c_serve() bind(c, name='holdfast_fti_serve')
      import :: c_int
    end function
    subroutine c_exit(status) bind(c, name='exit')
      import :: c_int
      integer(c_int), value :: status
    end subroutine
    integer(c_int) function c_status() bind(c, name='FTI_Status')
      import :: c_int
    end function
    integer(c_int) function c_init_type(kind, bytes) bind(c, name='FTI_InitType')
      import :: c_int, FTI_type
      type(FTI_type), intent(out) :: kind
      integer(c_int), value :: bytes
    end function
    integer(c_int) function c_protect(id, address, count, kind) bind(c, name='FTI_Protect')
      import :: c_int, c_long, c_ptr, FTI_type
      integer(c_int), value :: id
      type(c_ptr), value :: address
      integer(c_long), value :: count
      type(FTI_type), value :: kind
    end function
    integer(c_long) function c_stored_size(id) bind(c, name='FTI_GetStoredSize')
      import :: c_int, c_long
      integer(c_int), value :: id
    end function
    type(c_ptr) function c_realloc(id, address) bind(c, name='holdfast_fti_realloc')
      import :: c_int, c_ptr
      integer(c_int), value :: id
      type(c_ptr), value :: address
    end function
    integer(c_int) function c_checkpoint(id, level) bind(c, name='FTI_Checkpoint')
      import :: c_int
      integer(c_int), value :: id, level
    end function
    integer(c_int) function c_recover() bind(c, name='FTI_Recover')
      import :: c_int
    end function
    integer(c_int) function c_recover_var(id) bind(c, name='FTI_RecoverVar')
      import :: c_int
      integer(c_int), value :: id
    end function
    integer(c_int) function c_recover_var_init() bind(c, name='FTI_RecoverVarInit')
      import :: c_int
    end function
    integer(c_int) function c_recover_var_finalize() bind(c, name='FTI_RecoverVarFinalize')
      import :: c_int
    end function
    integer(c_int) function c_init_icp(id, level, activate) bind(c, name='FTI_InitICP')
      import :: c_bool, c_int
      integer(c_int), value :: id, level
      logical(c_bool), value :: activate
    end function
    integer(c_int) function c_add_var_icp(id) bind(c, name='FTI_AddVarICP')
      import :: c_int
      integer(c_int), value :: id
    end function
    integer(c_int) function c_finalize_icp() bind(c, name='FTI_FinalizeICP')
      import :: c_int
    end function
    integer(c_int) function c_set_id(name) bind(c, name='FTI_setIDFromString')
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_get_id(name) bind(c, name='FTI_getIDFromString')
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_describe(id, name, dimensions, shape) bind(c, name='holdfast_fti_describe')
      import :: c_int, c_ptr
      integer(c_int), value :: id, dimensions
      type(c_ptr), value :: name, shape
    end function
    integer(c_int) function c_snapshot() bind(c, name='FTI_Snapshot')
      import :: c_int
    end function
    integer(c_int) function c_finalize() bind(c, name='FTI_Finalize')
      import :: c_int
    end function
  end interface

contains

  ! With Head = 1 in the file, global_comm becomes the communicator of the application. In a head process, FTI_Init ends
  ! the process at the end of the run, or returns FTI_HEAD with Keep_heads_alive = 1. Otherwise it is unchanged.
  subroutine FTI_Init(config_file, global_comm, err)
    character(*), intent(in) :: config_file
    integer, intent(inout) :: global_comm
    integer, intent(out) :: err
    integer :: rank, ranks, part, error
    integer(c_int) :: role
    external :: MPI_Comm_rank, MPI_Comm_size, MPI_Comm_split, MPI_Finalize
    err = FTI_NSCS
    call MPI_Comm_rank(global_comm, rank, err)
    if (err == 0) call MPI_Comm_size(global_comm, ranks, err)
    if (err /= 0) then
      err = FTI_NSCS
      return
    end if
    err = c_start(trim(config_file)//c_null_char, int(rank, c_int), int(ranks, c_int), role)
    if (err /= FTI_SCES .or. role == 0) return
    call MPI_Comm_split(global_comm, int(role), rank, part, error)
    if (error /= 0) then
      err = FTI_NSCS
      return
    end if
    global_comm = part
    if (role == 1) return
    err = c_serve()
    if (err == FTI_HEAD) return
    call MPI_Finalize(error)
    call c_exit(0_c_int)
  end subroutine

  subroutine FTI_Status(status)
    integer, intent(out) :: status
    status = c_status()
  end subroutine

  subroutine FTI_InitType(type_F, size_F, err)
    type(FTI_type), intent(out) :: type_F
    integer, intent(in) :: size_F
    integer, intent(out) :: err
    err = c_init_type(type_F, int(size_F, c_int))
  end subroutine

  subroutine stored_size(id_F, size)
    integer, intent(in) :: id_F
    integer(int32), intent(out) :: size
    integer(c_long) :: bytes
    bytes = c_stored_size(int(id_F, c_int))
    if (bytes > huge(size)) then
      write (error_unit, '(a,i0,a)') 'holdfast: FTI_GetStoredSize: variable ', id_F, ' needs an integer(8) for its size'
      bytes = 0
    end if
    size = int(bytes, int32)
  end subroutine

  subroutine stored_size_long(id_F, size)
    integer, intent(in) :: id_F
    integer(int64), intent(out) :: size
    size = c_stored_size(int(id_F, c_int))
  end subroutine

  subroutine FTI_Realloc(id_F, ptr, ierr)
    integer, intent(in) :: id_F
    type(c_ptr), intent(inout) :: ptr
    integer, intent(out) :: ierr
    type(c_ptr) :: moved
    moved = c_realloc(int(id_F, c_int), ptr)
    ierr = FTI_NSCS
    if (.not. c_associated(moved)) return
    ptr = moved
    ierr = FTI_SCES
  end subroutine

  subroutine FTI_Checkpoint(id_F, level, err)
    integer, intent(in) :: id_F, level
    integer, intent(out) :: err
    err = c_checkpoint(int(id_F, c_int), int(level, c_int))
  end subroutine

  subroutine FTI_Recover(err)
    integer, intent(out) :: err
    err = c_recover()
  end subroutine

  subroutine FTI_RecoverVar(id, err)
    integer, intent(in) :: id
    integer, intent(out) :: err
    err = c_recover_var(int(id, c_int))
  end subroutine

  subroutine FTI_RecoverVarInit(err)
    integer, intent(out) :: err
    err = c_recover_var_init()
  end subroutine

  subroutine FTI_RecoverVarFinalize(err)
    integer, intent(out) :: err
    err = c_recover_var_finalize()
  end subroutine

  subroutine FTI_InitICP(id_F, level, activate, err)
    integer, intent(in) :: id_F, level
    logical, intent(in) :: activate
    integer, intent(out) :: err
    err = c_init_icp(int(id_F, c_int), int(level, c_int), logical(activate, c_bool))
  end subroutine

  subroutine FTI_AddVarICP(id_F, err)
    integer, intent(in) :: id_F
    integer, intent(out) :: err
    err = c_add_var_icp(int(id_F, c_int))
  end subroutine

  subroutine FTI_FinalizeICP(err)
    integer, intent(out) :: err
    err = c_finalize_icp()
  end subroutine

  subroutine FTI_setIDFromString(name, id)
    character(*), intent(in) :: name
    integer, intent(out) :: id
    id = c_set_id(trim(name)//c_null_char)
  end subroutine

  subroutine FTI_getIDFromString(name, id)
    character(*), intent(in) :: name
    integer, intent(out) :: id
    id = c_get_id(trim(name)//c_null_char)
  end subroutine

  subroutine set_name(id, attribute, flag, err)
    integer, intent(in) :: id
    character(*), intent(in) :: attribute
    integer, intent(in) :: flag
    integer, intent(out) :: err
    character(:, kind=c_char), allocatable, target :: name
    err = FTI_NSCS
    if (.not. is_flag(flag, FTI_ATTRIBUTE_NAME, 'FTI_ATTRIBUTE_NAME')) return
    name = trim(attribute)//c_null_char
    err = c_describe(int(id, c_int), c_loc(name), 0_c_int, c_null_ptr)
  end subroutine

  subroutine set_shape_long(id, attribute, flag, err)
    integer, intent(in) :: id
    integer(int64), intent(in) :: attribute(:)
    integer, intent(in) :: flag
    integer, intent(out) :: err
    integer(c_int64_t), target :: shape(max(size(attribute), 1))
    err = FTI_NSCS
    if (.not. is_flag(flag, FTI_ATTRIBUTE_DIM, 'FTI_ATTRIBUTE_DIM')) return
    shape(:size(attribute)) = attribute
    err = c_describe(int(id, c_int), c_null_ptr, int(size(attribute), c_int), c_loc(shape))
  end subroutine

  subroutine set_shape(id, attribute, flag, err)
    integer, intent(in) :: id
    integer(int32), intent(in) :: attribute(:)
    integer, intent(in) :: flag
    integer, intent(out) :: err
    call set_shape_long(id, int(attribute, int64), flag, err)
  end subroutine

  logical function is_flag(flag, expected, name)
    integer, intent(in) :: flag, expected
    character(*), intent(in) :: name
    is_flag = flag == expected
    if (.not. is_flag) write (error_unit, '(a,i0,2a)') &
        'holdfast: FTI_SetAttribute: the flag is ', flag, ': for an attribute of this type, pass ', name
  end function

  subroutine FTI_Snapshot(err)
    integer, intent(out) :: err
    err = c_snapshot()
  end subroutine

  subroutine FTI_Finalize(err)
    integer, intent(out) :: err
    err = c_finalize()
  end subroutine

  subroutine protect_address(id_F, ptr, count_F, type_F, err)
    integer, intent(in) :: id_F
    type(c_ptr), value :: ptr
    integer(int32), intent(in) :: count_F
    type(FTI_type), intent(in) :: type_F
    integer, intent(out) :: err
    err = c_protect(int(id_F, c_int), ptr, int(count_F, c_long), type_F)
  end subroutine

  subroutine protect_address_long(id_F, ptr, count_F, type_F, err)
    integer, intent(in) :: id_F
    type(c_ptr), value :: ptr
    integer(int64), intent(in) :: count_F
    type(FTI_type), intent(in) :: type_F
    integer, intent(out) :: err
    err = c_protect(int(id_F, c_int), ptr, int(count_F, c_long), type_F)
  end subroutine

  ! A copy of the elements would be protected instead of the variable if it were not contiguous.
  subroutine protect_contiguous(id, address, contiguous, count, kind, err)
    integer, intent(in) :: id
    type(c_ptr), intent(in) :: address
    logical, intent(in) :: contiguous
    integer(int64), intent(in) :: count
    type(FTI_type), intent(in) :: kind
    integer, intent(out) :: err
    if (.not. contiguous) then
      write (error_unit, '(a,i0,a)') 'holdfast: FTI_Protect: the elements of variable ', id, ' are not contiguous'
      err = FTI_NSCS
      return
    end if
    call protect_address_long(id, address, count, kind, err)
  end subroutine

  subroutine protect_int8(id_F, variable, err)
    integer, intent(in) :: id_F
    integer(int8), intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), FTI_INTEGER1, err)
  end subroutine

  subroutine protect_int16(id_F, variable, err)
    integer, intent(in) :: id_F
    integer(int16), intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), FTI_INTEGER2, err)
  end subroutine

  subroutine protect_int32(id_F, variable, err)
    integer, intent(in) :: id_F
    integer(int32), intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), FTI_INTEGER4, err)
  end subroutine

  subroutine protect_int64(id_F, variable, err)
    integer, intent(in) :: id_F
    integer(int64), intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), FTI_INTEGER8, err)
  end subroutine

  subroutine protect_real32(id_F, variable, err)
    integer, intent(in) :: id_F
    real(real32), intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), FTI_REAL4, err)
  end subroutine

  subroutine protect_real64(id_F, variable, err)
    integer, intent(in) :: id_F
    real(real64), intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), FTI_REAL8, err)
  end subroutine

  subroutine protect_complex32(id_F, variable, err)
    integer, intent(in) :: id_F
    complex(real32), intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), FTI_COMPLEX4, err)
  end subroutine

  subroutine protect_complex64(id_F, variable, err)
    integer, intent(in) :: id_F
    complex(real64), intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        size(variable, kind=int64), FTI_COMPLEX8, err)
  end subroutine

  subroutine protect_logical(id_F, variable, err)
    integer, intent(in) :: id_F
    logical, intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        storage_size(variable, int64)/8*size(variable, kind=int64), FTI_LOGICAL1, err)
  end subroutine

  subroutine protect_character(id_F, variable, err)
    integer, intent(in) :: id_F
    character(*), intent(inout), target :: variable(..)
    integer, intent(out) :: err
    call protect_contiguous(id_F, c_loc(variable), is_contiguous(variable), &
        len(variable, int64)*size(variable, kind=int64), FTI_CHARACTER1, err)
  end subroutine
end module
