package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// ErrNoCgroups means that the program cannot limit CPU here: there is no CPU controller of cgroups, or it is not root.
var ErrNoCgroups = errors.New("no writable CPU controller of cgroups")

// cgroupPeriod is the period of a CPU limit, in microseconds; the kernel's default.
const cgroupPeriod = 100_000

// Limit gives the server a share of a core until remove is called, which ends the server. ErrNoCgroups: that cannot be had here.
func (s *Server) Limit(cores float64) (remove func(), err error) {
	pid, quota := strconv.Itoa(s.process.Process.Pid), strconv.Itoa(int(cores*cgroupPeriod))
	dir := "/sys/fs/cgroup/cpu/converge-" + pid // version 1
	files := [][2]string{{"cpu.cfs_quota_us", quota}, {"cgroup.procs", pid}}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // version 2
		dir = "/sys/fs/cgroup/converge-" + pid
		files[0] = [2]string{"cpu.max", fmt.Sprintf("%s %d", quota, cgroupPeriod)}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, errors.Join(ErrNoCgroups, err)
	}
	remove = func() {
		s.Kill()
		_ = os.Remove(dir) // it is empty
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(dir, file[0]), []byte(file[1]), 0o600); err != nil {
			_ = os.Remove(dir)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				err = errors.Join(ErrNoCgroups, err)
			}
			return nil, err
		}
	}
	return remove, nil
}
