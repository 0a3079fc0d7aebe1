package custom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/secret"
)

// inherited are the only variables of the worker's environment that a local command gets. The rest is for the worker itself,
// including its credentials. A command that needs more has to name it in the runtime's env.
var inherited = [...]string{"PATH", "HOME", "LANG", "TMPDIR", "USER"}

// filesVariable is the variable for the directory of a payload's files.
const filesVariable = "CONVERGE_FILES"

// environment is the environment of a command (C7) on every kind of runner; a later source overrides an earlier one: the payload's
// env, the runtime's env, and the variables of Converge. A service gives values to the commands of another owner: it cannot change
// those that the owner set, and sets only those that the owner allows.
func (r *Runtime) environment(ctx context.Context, in runtimes.Request) (env, secrets map[string]string, err error) {
	values := map[string]entities.Value{}
	if in.Payload != nil && in.Payload.Custom != nil {
		maps.Copy(values, in.Payload.Custom.Env)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if why := r.def.EnvDenial(in.Allow, in.Application, name); why != "" {
			return nil, nil, runtimes.Permanent(fmt.Errorf("service %s: %s", in.Service, why))
		}
	}
	maps.Copy(values, r.def.Custom.Env)
	if env, secrets, err = resolve(ctx, values, in, r.secrets); err != nil {
		err = fmt.Errorf("runtime %s: %w", r.def.Name, err)
	}
	return env, secrets, err
}

// resolve fills in the values of an environment and adds the variables of Converge, which override them. It resolves secrets here,
// just before a command starts, and returns them separately by the name of their variable. It returns them even with an error, so
// that they can be redacted.
func resolve(ctx context.Context, values map[string]entities.Value, in runtimes.Request, source secret.Source) (env, secrets map[string]string, err error) {
	env, secrets = map[string]string{}, map[string]string{}
	source = secret.ForChannel(source, in.Application, in.ID.Channel)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		if !v.IsSecret() {
			env[name] = v.Literal
			continue
		}
		text, err := secret.Resolve(ctx, source, name, v)
		if err != nil {
			return nil, secrets, err
		}
		secrets[name] = text
	}
	for name, value := range variables(in) {
		delete(secrets, name)
		env[name] = value
	}
	for _, all := range []map[string]string{env, secrets} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(all[name], "\x00") {
				return nil, secrets, runtimes.Permanent(fmt.Errorf("%q cannot be an environment variable: = in its name, or a zero byte", name))
			}
		}
	}
	return env, secrets, nil
}

// inherit is the part of the worker's environment for a local command.
func inherit() map[string]string {
	all := map[string]string{}
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			all[name] = v
		}
	}
	return all
}

// variables are the variables of Converge for every command about the instance (C7), and its address on the runtime: address
// `namespace` is CONVERGE_ADDRESS_NAMESPACE.
func variables(in runtimes.Request) map[string]string {
	vars := map[string]string{
		"PVN_APPLICATION":     in.Application,
		"PVN_SERVICE":         in.Service,
		"PVN_SERVICE_ID":      in.ServiceID,
		"PVN_SERVICE_VERSION": in.FullVersion,
		"PVN_RELEASE_CHANNEL": in.ID.Channel,
	}
	if in.ID.Name != "" {
		vars["PVN_INSTANCE"] = in.ID.Name
	}
	if in.Fence != nil {
		vars["CONVERGE_EPOCH"] = strconv.FormatInt(in.Fence.Epoch, 10)
		vars["CONVERGE_SEQUENCE"] = strconv.FormatInt(in.Fence.Sequence, 10)
	}
	if in.Restart {
		vars["PVN_RESTART"] = "1"
	}
	if in.Payload != nil {
		for name, value := range in.Payload.Address {
			vars["CONVERGE_ADDRESS_"+variable(name)] = value
		}
	}
	return vars
}

func variable(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}

// filePaths are the variables for the paths of files, below a directory.
func (w command) filePaths(dir string) map[string]string {
	vars := map[string]string{}
	for name, file := range w.fileVariables {
		vars[name] = path.Join(dir, file)
	}
	return vars
}

// writeFiles writes a payload's files into a new directory that only this user can read. A path outside it is a permanent error. It
// returns the directory even with an error, so that the caller can remove it.
func writeFiles(files map[string]string) (dir string, err error) {
	dir, err = os.MkdirTemp("", "converge-files-")
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return dir, err
	}
	defer func() { _ = root.Close() }() // a directory handle, nothing buffered
	for _, name := range slices.Sorted(maps.Keys(files)) {
		local, err := filepath.Localize(filepath.ToSlash(filepath.Clean(name)))
		if err != nil || local == "." {
			return dir, runtimes.Permanent(fmt.Errorf("file %q of the payload is not a path inside its directory", name))
		}
		if err := root.MkdirAll(filepath.Dir(local), 0o700); err != nil {
			return dir, err
		}
		if err := root.WriteFile(local, []byte(files[name]), 0o600); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// program finds the executable file. A name with a slash is relative to the directory of the definition; a name without one is
// searched in the PATH of the command.
func (l *localRunner) program(name, searchPath string) (string, error) {
	if strings.ContainsAny(name, "/"+string(filepath.Separator)) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(l.dir, name)
		}
		return name, executable(name)
	}
	for _, dir := range filepath.SplitList(searchPath) {
		if path := filepath.Join(dir, name); filepath.IsAbs(dir) && executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("command %s not found in PATH (%s)", name, searchPath)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("command not found: %s does not exist", path)
	case err != nil:
		return fmt.Errorf("command not found: %w", err)
	case info.IsDir():
		return fmt.Errorf("command not found: %s is a directory", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable (chmod +x)", path)
	}
	return nil
}

// startError explains why an existing program could not be started, with the code of the reading error. The message of the system
// ("no such file or directory") would name the wrong file.
func (l *localRunner) startError(path string, err error) (code string, explained error) {
	_, dirErr := os.Stat(cmp.Or(l.dir, "."))
	switch {
	case dirErr != nil:
		return runtimes.CodeFetchFailed, fmt.Errorf("working directory: %w", dirErr)
	case errors.Is(err, syscall.ENOEXEC):
		return runtimes.CodeCommandNotFound, fmt.Errorf("%s cannot be executed: not a program for this machine, nor a script whose first line names its interpreter (#!/bin/sh)", path)
	case errors.Is(err, fs.ErrNotExist):
		return runtimes.CodeCommandNotFound, fmt.Errorf("%s cannot be executed: the interpreter in its first line does not exist", path)
	}
	return runtimes.CodeFetchFailed, fmt.Errorf("%s cannot be started: %w", path, err)
}
