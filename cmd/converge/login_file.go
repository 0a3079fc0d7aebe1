package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// loginFile returns the path of the login file. Only its owner can read it.
func (f *Factory) loginFile() (string, error) {
	dir := f.Env("CONVERGE_CONFIG_DIR")
	if dir == "" {
		base, err := os.UserConfigDir()
		if err != nil {
			return "", fmt.Errorf("find a directory for the login: %w; set CONVERGE_CONFIG_DIR", err)
		}
		dir = filepath.Join(base, "converge")
	}
	return filepath.Join(dir, "login.json"), nil
}

// withLogin calls do while it holds the lock of the login file. Verbs run concurrently: each takes its own token from the login, and a
// refresh token may be valid only once.
func (f *Factory) withLogin(ctx context.Context, do func(file string) error) error {
	name, err := f.loginFile()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	unlock, err := acquireLock(ctx, name+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	return do(name)
}

const (
	lockRetryInterval = 20 * time.Millisecond // interval between attempts
	staleLockAge      = 2 * actTimeout        // then the process was killed: a living one holds the lock for less
)

// acquireLock creates a lock file, and waits if another process has created it. Lock functions of the operating system differ between
// platforms.
func acquireLock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			return func() { _ = errors.Join(file.Close(), os.Remove(name)) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > staleLockAge {
			_ = os.Remove(name)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another command holds your login (%s): %w", name, ctx.Err())
		case <-time.After(lockRetryInterval):
		}
	}
}

// saveLogin replaces the login file atomically.
func saveLogin(name string, l login) error {
	file, err := os.CreateTemp(filepath.Dir(name), ".login-") // 0600
	if err != nil {
		return err
	}
	_, err = file.Write(l.bytes())
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

func (f *Factory) deleteLogin(ctx context.Context) error {
	if name, err := f.loginFile(); err != nil || !exists(name) {
		return err
	}
	return f.withLogin(ctx, func(file string) error {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// loginToken returns a token of the login for one verb, or "" if there is no login. It saves the remaining login before the token is
// used, because a token serves one request.
func (f *Factory) loginToken(ctx context.Context) (token string, err error) {
	if name, err := f.loginFile(); err != nil || !exists(name) {
		return "", nil // no directory for a login
	}
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	err = f.withLogin(ctx, func(file string) error {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var l login
		if err == nil {
			err = json.Unmarshal(data, &l)
		}
		if err != nil {
			return fmt.Errorf("read your login: %w; delete it with: converge logout", err)
		}
		if err := l.renew(ctx, f.Now().Add(time.Second)); err != nil {
			return err
		}
		stored := l
		stored.Token = ""
		if err := saveLogin(file, stored); err != nil {
			return err
		}
		token = l.Token
		return nil
	})
	return token, err
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
