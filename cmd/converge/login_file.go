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

// loginFile is where a login is kept: nobody else can read it.
func (f *Factory) loginFile() (string, error) {
	dir := f.Env("CONVERGE_CONFIG_DIR")
	if dir == "" {
		base, err := os.UserConfigDir()
		if err != nil {
			return "", fmt.Errorf("where to keep a login: %w; set CONVERGE_CONFIG_DIR", err)
		}
		dir = filepath.Join(base, "converge")
	}
	return filepath.Join(dir, "login.json"), nil
}

// keepLogin replaces the file as a whole.
func (f *Factory) keepLogin(l login) error {
	name, err := f.loginFile()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
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

func (f *Factory) forgetLogin() error {
	name, err := f.loginFile()
	if err != nil {
		return err
	}
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// loginToken is a token of the login that there is, for one verb; empty: there is no login. What is left of the login is
// kept before the token is used: it serves one request.
func (f *Factory) loginToken(ctx context.Context) (string, error) {
	name, err := f.loginFile()
	if err != nil {
		return "", nil // there can be none
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var l login
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	if err != nil {
		return "", fmt.Errorf("read your login: %w; forget it with: converge logout", err)
	}
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	if err := l.renewed(ctx, f.Now().Add(time.Second)); err != nil {
		return "", err
	}
	token := l.Token
	l.Token = ""
	return token, f.keepLogin(l)
}
