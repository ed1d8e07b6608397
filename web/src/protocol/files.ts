// Files as the protocol carries them: in base64, with name and type.
import type { Attachment } from "./frames";

/** Reads a file that is to be sent. */
export function toAttachment(file: File): Promise<Attachment> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => reject(new Error("The file cannot be read."));
    reader.onload = () => {
      const address = typeof reader.result === "string" ? reader.result : "";
      resolve({ data: address.slice(address.indexOf(",") + 1), filename: file.name, content_type: file.type || "application/octet-stream" });
    };
    reader.readAsDataURL(file);
  });
}
