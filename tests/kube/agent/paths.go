package agent

import (
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// files says where the paths that a container's mounts have inside it lie on this machine. A process has no file
// system of its own, so each such path in its command, arguments, environment and working directory is replaced by
// the real one: "sh -c 'cat /etc/web/page'" reads the ConfigMap mounted at /etc/web. A path that a program has built
// in, or joins from parts, is not found.
type files []mapping

type mapping struct{ inside, outside string }

// filesOf lists the mounts of a container and its termination log, longest path first.
func (r *run) filesOf(c *corev1.Container) files {
	var all files
	for _, mount := range c.VolumeMounts {
		for i := range r.pod.Spec.Volumes {
			if volume := &r.pod.Spec.Volumes[i]; volume.Name == mount.Name {
				all = append(all, mapping{filepath.Clean(mount.MountPath), filepath.Join(r.volumeDir(volume), mount.SubPath)})
			}
		}
	}
	all = append(all, mapping{c.TerminationMessagePath, r.terminationFile(c)})
	all = slices.DeleteFunc(all, func(m mapping) bool { return m.inside == "" || m.inside == "/" })
	slices.SortStableFunc(all, func(x, y mapping) int { return len(y.inside) - len(x.inside) })
	return all
}

func (f files) mapped(path string) bool {
	return slices.ContainsFunc(f, func(m mapping) bool { return path == m.inside || strings.HasPrefix(path, m.inside+"/") })
}

// rewrite replaces the paths that stand by themselves: after the beginning or a sign that is no part of a path, and
// before the end, such a sign or a slash.
func (f files) rewrite(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		if m, ok := f.at(text, i); ok {
			out.WriteString(m.outside)
			i += len(m.inside)
			continue
		}
		out.WriteByte(text[i])
		i++
	}
	return out.String()
}

func (f files) at(text string, i int) (mapping, bool) {
	if text[i] != '/' || i > 0 && inPath(text[i-1]) {
		return mapping{}, false
	}
	for _, m := range f {
		rest, found := strings.CutPrefix(text[i:], m.inside)
		if found && (rest == "" || rest[0] == '/' || !inPath(rest[0])) {
			return m, true
		}
	}
	return mapping{}, false
}

func inPath(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("/._-+@%~$}", b) >= 0
}
