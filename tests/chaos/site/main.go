// Command site is the two commands of the runtime on which the chaos run plays: a service in a channel is a file that
// holds its version. `site apply DIR` appends a line to DIR/applies.jsonl when it begins and another when it ends, and says
// in the first whether another apply of the same instance was alive then: each holds a lock, which the system takes back
// when a process is gone, however it went. What an apply does follows from its version alone: see Outcome.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/converge-engine/converge/tests/chaos/record"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: site apply|fetch DIR"))
	}
	s := site{dir: os.Args[2], service: os.Getenv("PVN_SERVICE"), channel: os.Getenv("PVN_RELEASE_CHANNEL"), version: os.Getenv("PVN_SERVICE_VERSION")}
	run := map[string]func() error{"apply": s.apply, "fetch": s.fetch}[os.Args[1]]
	if run == nil {
		fail(fmt.Errorf("%s: expected apply or fetch", os.Args[1]))
	}
	if err := run(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

type site struct{ dir, service, channel, version string }

// file of this service in this channel, such as "s1-staging.version".
func (s site) file(kind string) string {
	return filepath.Join(s.dir, s.service+"-"+s.channel+"."+kind)
}

func (s site) apply() error {
	lock, beside, err := s.alone()
	if err != nil {
		return err
	}
	defer lock.Close()
	attempt, err := s.count()
	if err != nil {
		return err
	}
	line := record.Line{
		Event: record.Start, Service: s.service, Channel: s.channel, Version: s.version,
		Attempt: attempt, PID: os.Getpid(), Worker: os.Getppid(), Beside: beside, At: time.Now(),
	}
	if err := s.log(line); err != nil {
		return err
	}
	o := record.OutcomeOf(s.version, s.channel, attempt)
	<-time.After(o.Takes) // this is what the apply has to do
	if !o.Fails {
		if err := s.put(); err != nil {
			return err
		}
	}
	line.Event, line.OK, line.At = record.End, !o.Fails, time.Now()
	if err := s.log(line); err != nil {
		return err
	}
	if o.Fails {
		return fmt.Errorf("%s does not work in %s", s.version, s.channel)
	}
	return nil
}

// alone takes the lock of the instance, and writes into it whose it is; or says who has it.
func (s site) alone() (lock *os.File, beside int, err error) {
	if lock, err = os.OpenFile(s.file("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, 0, err
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		_, _ = fmt.Fscan(lock, &beside) // it may not have written itself down yet
		return lock, max(beside, 1), nil
	}
	if err == nil {
		err = lock.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprint(lock, os.Getpid())
	}
	return lock, 0, err
}

// count is how often this version was applied here, this time included.
func (s site) count() (int, error) {
	f, err := os.OpenFile(s.file("attempts-"+s.version), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.WriteString("."); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return int(info.Size()), nil
}

// log appends a line in one write, so that lines of several processes do not mix.
func (s site) log(line record.Line) error {
	f, err := os.OpenFile(filepath.Join(s.dir, record.LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return err
}

// put moves the instance to the version: all of it, or nothing when it is killed.
func (s site) put() error {
	temporary := fmt.Sprintf("%s-%d", s.file("new"), os.Getpid())
	if err := os.WriteFile(temporary, []byte(s.version), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, s.file("version"))
}

func (s site) fetch() error {
	type version struct {
		Version string `json:"version"`
		Active  bool   `json:"active"`
	}
	type object struct {
		Name     string    `json:"name"`
		Type     string    `json:"objectType"`
		Status   string    `json:"status"`
		Versions []version `json:"versions"`
	}
	there, err := os.ReadFile(s.file("version"))
	o := object{Name: s.service, Type: "file", Status: "SUCCEEDED", Versions: []version{}}
	switch {
	case err == nil:
		o.Versions = append(o.Versions, version{string(there), true})
	case !os.IsNotExist(err):
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string][]object{"objects": {o}})
}
