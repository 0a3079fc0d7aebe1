package charts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// credentials are the credentials for a host.
type credentials struct{ user, password string }

// credentialsOf returns the credentials for a host from netrc, or nil.
func credentialsOf(host string, env func(string) string) (*credentials, error) {
	user, password, found, err := Netrc(host, env)
	if err != nil || !found {
		return nil, err
	}
	return &credentials{user, password}, nil
}

// Netrc reads the credentials for a host from the file that git and curl use: NETRC, else ~/.netrc. Without a file, or an entry for the
// host, found is false.
func Netrc(host string, env func(string) string) (user, password string, found bool, err error) {
	file := env("NETRC")
	if file == "" {
		file = filepath.Join(env("HOME"), ".netrc")
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", false, nil
	}
	if err != nil {
		return "", "", false, fmt.Errorf("read the credentials of %s: %w", host, err)
	}
	words := strings.Fields(string(data))
	matches := false
	for i := 0; i < len(words); i++ {
		value := ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		switch words[i] {
		case "machine", "default":
			if found {
				return user, password, true, nil
			}
			matches = words[i] == "default" || value == host
			found = matches
		case "login":
			if matches {
				user = value
			}
		case "password":
			if matches {
				password = value
			}
		default:
			continue
		}
		if words[i] != "default" {
			i++ // its value
		}
	}
	return user, password, found, nil
}
