! As any_ranks.c: each rank reads the files of all ranks that wrote the checkpoint.
!
!     any_ranks STEPS RESULTS
program any_ranks
    implicit none
    include 'scrf.h'

    character(len=SCR_MAX_FILENAME) :: name, path, steps, results
    integer :: rank, ranks, found, written, files, total, step, restarted, last, at, writer, content, valid, ierror

    call get_command_argument(1, steps)
    call get_command_argument(2, results)
    read (steps, *) last
    written = 0
    files = 0
    total = 0
    restarted = 0
    call scr_init(ierror)
    if (ierror /= SCR_SUCCESS) stop 2
    call holdfast_rank(rank, ranks, ierror)
    call scr_have_restart(found, name, ierror)
    if (found == 1) then
        call scr_start_restart(name, ierror)
        call holdfast_restart_files(written, files, ierror)
        if (ierror /= SCR_SUCCESS) stop 3
        do at = 1, files
            call holdfast_restart_file(at, name, writer, ierror)
            if (ierror /= SCR_SUCCESS) stop 4
            call scr_route_file(name, path, ierror)
            if (ierror /= SCR_SUCCESS) stop 5
            open (10, file=path, status='old', action='read')
            read (10, *) restarted, content
            close (10)
            if (content /= writer) stop 6
            total = total + content
        end do
        call holdfast_restart_file(files + 1, name, writer, ierror)
        if (ierror == SCR_SUCCESS) stop 7
        call scr_complete_restart(1, ierror)
    end if
    do step = restarted + 1, last
        call scr_start_output('', 1, ierror)
        write (name, '(a, i0, a)') 'rank_', rank, '.txt'
        call scr_route_file(name, path, ierror)
        valid = merge(1, 0, ierror == SCR_SUCCESS)
        if (valid == 1) then
            open (10, file=path, status='replace', action='write')
            write (10, *) step, rank
            close (10)
        end if
        call scr_complete_output(valid, ierror)
    end do
    write (path, '(a, a, i0)') trim(results), '/result.', rank
    open (10, file=path, status='replace', action='write')
    write (10, '(i0, 1x, i0, 1x, i0, 1x, i0)') restarted, written, files, total
    close (10)
    call scr_finalize(ierror)
end program any_ranks
