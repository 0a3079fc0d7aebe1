package origin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// netrc is what the file that git and curl read says of a host: NETRC, else ~/.netrc. Without a file, or a word of the host in it,
// there is nothing.
func netrc(host string, env func(string) string) (transport.AuthMethod, error) {
	file := env("NETRC")
	if file == "" {
		file = filepath.Join(env("HOME"), ".netrc")
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nobody is asked for anything
	}
	if err != nil {
		return nil, fmt.Errorf("read the credentials of %s: %w", host, err)
	}
	words := strings.Fields(string(data))
	var user, password string
	mine, found := false, false
	for i := 0; i < len(words); i++ {
		value := ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		switch words[i] {
		case "machine", "default":
			if found {
				return &githttp.BasicAuth{Username: user, Password: password}, nil
			}
			mine = words[i] == "default" || value == host
			found = mine
		case "login":
			if mine {
				user = value
			}
		case "password":
			if mine {
				password = value
			}
		default:
			continue
		}
		if words[i] != "default" {
			i++ // its value
		}
	}
	if !found {
		return nil, nil //nolint:nilnil // as above
	}
	return &githttp.BasicAuth{Username: user, Password: password}, nil
}
