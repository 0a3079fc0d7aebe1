package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fileLock keeps other processes from using the database file next to it. The kernel releases it when this process ends, in any way, so a
// leftover lock file has no meaning. The file is never removed: a second process could then lock a new file while a third still waits on
// the old one.
type fileLock struct{ file *os.File }

// lockDatabase locks dbFile by the file of that name with .lock appended; the holder writes its process id there.
func lockDatabase(dbFile string) (*fileLock, error) {
	file, err := os.OpenFile(dbFile+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("database %s: its directory cannot be written to: %w", dbFile, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("database %s is in use by %s; stop that one, or choose another file with --db", dbFile, holder(file))
	} else if err == nil {
		err = writeContent(file, strconv.Itoa(os.Getpid())+"\n")
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &fileLock{file}, nil
}

func holder(file *os.File) string {
	content, err := io.ReadAll(io.LimitReader(file, 32))
	if pid, atoiErr := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && atoiErr == nil {
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}

func writeContent(file *os.File, content string) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(content), 0)
	return err
}

// release unlocks before it closes: a child process that is being started at this moment has a copy of the file descriptor, and with it the
// lock, until it executes its program.
func (l *fileLock) release() error {
	return errors.Join(unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close())
}
