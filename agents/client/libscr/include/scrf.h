! SCR's Fortran interface, version 3.1, carried out by Holdfast's agents. Fits fixed and free form:
!
!     include 'scrf.h'
!
!     SCR_INIT(IERROR)                        SCR_FINALIZE(IERROR)
!     SCR_GET_VERSION(VERSION, IERROR)        SCR_SHOULD_EXIT(FLAG, IERROR)
!     SCR_CONFIG(CONFIG, VALUE, IERROR)       SCR_ROUTE_FILE(NAME, FILE, IERROR)
!     SCR_NEED_CHECKPOINT(FLAG, IERROR)       SCR_START_CHECKPOINT(IERROR)
!     SCR_COMPLETE_CHECKPOINT(VALID, IERROR)
!     SCR_HAVE_RESTART(FLAG, NAME, IERROR)    SCR_START_RESTART(NAME, IERROR)
!     SCR_COMPLETE_RESTART(VALID, IERROR)
!     SCR_START_OUTPUT(NAME, FLAGS, IERROR)   SCR_COMPLETE_OUTPUT(VALID, IERROR)
!     SCR_CURRENT(NAME, IERROR)   SCR_DROP(NAME, IERROR)   SCR_DELETE(NAME, IERROR)
!
! Holdfast's own, after SCR_INIT: this process's rank, from 0, and the number of ranks.
!     HOLDFAST_RANK(RANK, RANKS, IERROR)
! In a restart: the number of ranks that wrote the checkpoint and the number of files that this process can route; then
! the name of file INDEX, from 1, and the rank that wrote it.
!     HOLDFAST_RESTART_FILES(RANKS, FILES, IERROR)
!     HOLDFAST_RESTART_FILE(INDEX, NAME, RANK, IERROR)
!
! NAME, FILE, CONFIG, VALUE and VERSION are CHARACTER*(*), the others INTEGER; flags are 1 (true) and 0.

! IERROR on success
      INTEGER SCR_SUCCESS
      PARAMETER (SCR_SUCCESS=0)

! longest path or name, in characters
      INTEGER SCR_MAX_FILENAME
      PARAMETER (SCR_MAX_FILENAME=1024)

! kind of a dataset; add the values
      INTEGER SCR_FLAG_NONE
      PARAMETER (SCR_FLAG_NONE=0)

      INTEGER SCR_FLAG_CHECKPOINT
      PARAMETER (SCR_FLAG_CHECKPOINT=1)

      INTEGER SCR_FLAG_OUTPUT
      PARAMETER (SCR_FLAG_OUTPUT=2)
