package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// longestGrace is what a process has to end after it was asked to, whatever its pod declares.
const longestGrace = 2 * time.Second

// attempt is one run of a container, from its start to its end.
type attempt struct {
	*run
	slot *slot
	does script
	env  map[string]string
	log  string
}

// carryOut returns how the container ended. When ctx ends, so does the container, and the result means nothing.
func (a *attempt) carryOut(ctx context.Context) ending {
	log, err := os.Create(a.log)
	if err != nil {
		return startError(err)
	}
	defer func() {
		log.Close()
		_ = os.WriteFile(a.log+logEnded, nil, 0o600) // who follows the log waits in vain without it, no more
	}()
	ready, stopReady := context.WithCancel(ctx)
	defer stopReady()
	if a.does.process {
		return a.runProcess(ctx, log, func() { go a.becomeReady(ready) })
	}
	go a.becomeReady(ready)
	return a.play(ctx, log)
}

func (a *attempt) play(ctx context.Context, log *os.File) ending {
	fmt.Fprintf(log, "played: %s\n", a.slot.spec.Image)
	if !a.does.exits {
		<-ctx.Done()
		return ending{}
	}
	if !pause(ctx, a.does.exitIn) {
		return ending{}
	}
	if a.does.message != "" {
		fmt.Fprintln(log, a.does.message)
	}
	return ended(a.does.exitCode, a.does.message)
}

func ended(code int32, message string) ending {
	if code == 0 {
		return ending{code: code, reason: "Completed", message: message}
	}
	return ending{code: code, reason: "Error", message: message}
}

// startError is what a container runtime says of a command that is not there.
func startError(err error) ending {
	return ending{code: 128, reason: "StartError", message: "failed to create containerd task: failed to create shim task: OCI runtime create failed: " + err.Error()}
}

// becomeReady makes the container ready in its time, unless ctx ends before.
func (a *attempt) becomeReady(ctx context.Context) {
	probe := a.slot.spec.ReadinessProbe
	switch {
	case a.does.neverReady:
		a.warn(a.slot, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
		return
	case a.does.exits && a.does.exitIn <= a.does.readyIn:
		return // a kubelet would not see it ready either
	case !pause(ctx, a.does.readyIn):
		return
	case a.does.process && probe != nil && !a.untilProbed(ctx, probe):
		return
	}
	a.change(func() {
		if ctx.Err() == nil {
			a.slot.status.Ready = true
		}
	})
}

// runProcess runs the command in a process group of its own, so that what it started ends with it.
func (a *attempt) runProcess(ctx context.Context, log *os.File, started func()) ending {
	files := a.filesOf(a.slot.spec)
	argv := a.argv(files)
	if len(argv) == 0 {
		if a.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
			return startError(errors.New("no command specified: the image is not there, so its own command is not known"))
		}
		return ended(0, "no command")
	}
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Dir = a.containerDir(a.slot.spec.Name)
	if dir := a.slot.spec.WorkingDir; dir != "" && files.mapped(dir) {
		command.Dir = files.rewrite(dir)
	}
	command.Env = a.processEnv(files)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = min(longestGrace, grace(a.pod))
	if err := command.Start(); err != nil {
		a.warn(a.slot, "Failed", "Error: "+startError(err).message)
		return startError(err)
	}
	started()
	err := command.Wait()
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)   // the group has mostly ended with its leader
	message, _ := os.ReadFile(a.terminationFile(a.slot.spec)) // most write none
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ended(0, string(message))
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return ended(int32(exit.ExitCode()), a.messageOr(message))
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
		return ended(128+int32(exit.Sys().(syscall.WaitStatus).Signal()), a.messageOr(message))
	default:
		return startError(err)
	}
}

// messageOr is the end of the log, when the container did not write a message and wants that.
func (a *attempt) messageOr(message []byte) string {
	if len(message) > 0 || a.slot.spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return string(message)
	}
	log, err := os.ReadFile(a.log)
	if err != nil {
		return ""
	}
	const longest = 2048
	return string(log[max(0, len(log)-longest):])
}

func grace(pod *corev1.Pod) time.Duration {
	if pod.Spec.TerminationGracePeriodSeconds == nil {
		return longestGrace
	}
	// Zero would mean to wait for ever.
	return max(time.Duration(*pod.Spec.TerminationGracePeriodSeconds)*time.Second, time.Millisecond)
}

func (a *attempt) argv(files files) []string {
	lookup := expansion.MappingFuncFor(a.env)
	var argv []string
	for _, word := range append(append([]string{}, a.slot.spec.Command...), a.slot.spec.Args...) {
		argv = append(argv, files.rewrite(expansion.Expand(word, lookup)))
	}
	return argv
}

// processEnv is the declared environment, and what any process of this machine needs.
func (a *attempt) processEnv(files files) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.containerDir(a.slot.spec.Name), "HOSTNAME=" + a.pod.Name}
	for _, name := range sortedKeys(a.env) {
		env = append(env, name+"="+files.rewrite(a.env[name]))
	}
	return append(env, "TERMINATION_LOG="+a.terminationFile(a.slot.spec))
}

func (r *run) containerDir(name string) string { return filepath.Join(r.dir, "containers", name) }

func (r *run) terminationFile(c *corev1.Container) string {
	return filepath.Join(r.dir, "containers", strings.ReplaceAll(c.Name, "/", "_")+".message")
}
