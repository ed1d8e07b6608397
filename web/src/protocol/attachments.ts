// Reads a file into the form in which the protocol carries it: base64 with a name and a content type.
import type { Attachment } from "./frames";

/** Reads a file for sending. Rejects if the browser cannot read it, for example because it was moved. */
export function readAttachment(file: File): Promise<Attachment> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => reject(new Error("The browser cannot read the file."));
    reader.onload = () => {
      const dataUrl = typeof reader.result === "string" ? reader.result : "";
      resolve({ data: dataUrl.slice(dataUrl.indexOf(",") + 1), filename: file.name, content_type: file.type || "application/octet-stream" });
    };
    reader.readAsDataURL(file);
  });
}
