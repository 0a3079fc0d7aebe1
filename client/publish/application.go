package publish

import (
	"bytes"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// FindApplication walks up from dir to the first directory whose files define an application.
func FindApplication(dir string) (name, root string) {
	for {
		if name := ApplicationIn(dir); name != "" {
			return name, dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ""
		}
		dir = parent
	}
}

// ApplicationIn reads only kind and name, so that a directory with errors still has its name.
func ApplicationIn(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.converge.yaml"))
	for _, file := range append(files, filepath.Join(dir, "converge.yaml")) {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		decoder := yaml.NewDecoder(bytes.NewReader(data))
		for {
			var header struct{ Kind, Name string }
			if err := decoder.Decode(&header); err != nil {
				break // the end, or an error that validate shows
			}
			if header.Kind == "Application" && header.Name != "" {
				return header.Name
			}
		}
	}
	return ""
}
